"""Tube with several GPUs, whose links carry one GPU's large copies."""
import json
import os
import subprocess

import arm_set

PAYING = 0  # as many links as pay, as TUBE_COPY_PATHS says it


def simulated(bench_set, gpus):
    """What gives a program, or a proxy, so many GPUs where they are simulated."""
    if bench_set.backend != "sim":
        return {}
    return {"TUBE_SIM_TOPOLOGY": "hgx-h200", "TUBE_SIM_COUNT": str(gpus)}


class LinksArm(arm_set.TubeArm):
    """The first `gpus` GPUs, and each large copy over `links` of their links."""

    def __init__(self, name, bench_set, links, gpus):
        extra = {"TUBE_COPY_LANE": "auto", "TUBE_COPY_PATHS": str(links),
                 **simulated(bench_set, gpus)}
        super().__init__(name, bench_set, extra, tuple(range(gpus)))

    def several_links(self):
        """What the proxy counts of copies over several links."""
        done = subprocess.run([self.layout.tubectl, "copies", "-w", self.proxy.workflow, "--json"],
                              env=dict(os.environ, TUBE_DIR=str(self.proxy.dir)),
                              capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout).get("several_links")
