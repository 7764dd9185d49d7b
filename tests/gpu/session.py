"""What every suite of tests/gpu/run shares: the parts, the driver, proxies, environments of both
arms, folders, the clock."""
import pathlib
import shutil
import tempfile
import time

import probe
import tubetest

HERE = pathlib.Path(__file__).resolve().parent


class Session:
    """Made once per run. One thread changes `proxy`, the proxy that the core items share; the rest
    is read by several."""

    def __init__(self, options, driver):
        self.options, self.driver = options, driver
        self.layout = tubetest.Layout(options.build)
        self.nvml = probe.Nvml(driver)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tube-gpu-"))
        self.deadline = time.monotonic() + options.budget
        self.blocks = 5 if options.quick else 25
        self.proxy = None

    def close(self):
        if self.proxy is not None:
            self.proxy.__exit__(None, None, None)
        shutil.rmtree(self.work, ignore_errors=True)

    def new_proxy(self, workflow="gpu", gpus=None):
        """A running proxy; the caller ends it with __exit__."""
        return tubetest.Proxy(self.layout, "driver", workflow=workflow, driver=self.driver,
                              gpus=gpus).__enter__()

    def ensure_proxy(self):
        if self.proxy is None or not self.proxy.alive():
            self.drop_proxy()
            self.proxy = self.new_proxy()
        return self.proxy

    def drop_proxy(self):
        if self.proxy is not None:
            self.proxy.__exit__(None, None, None)
            self.proxy = None

    def native(self, command):
        return command, self.fresh_caches(
            tubetest.environment(self.layout, "native", "driver", driver=self.driver), "native")

    def tube(self, command, function, proxy=None):
        """Through `tubectl run`, as a user would; into the shared proxy when none is given."""
        proxy = proxy or self.ensure_proxy()
        env = tubetest.environment(self.layout, "native", "driver", driver=self.driver)
        env.update(TUBE_DIR=str(proxy.dir), TUBE_REAL_DRIVER=str(self.driver),
                   TUBE_LOG=self.options.log)
        return ([
            str(self.layout.tubectl), "run", "--workflow", proxy.workflow, "--function", function,
            "--", *command
        ], self.fresh_caches(env, "tube"))

    def fresh_caches(self, env, arm):
        """Compilers keep caches; each arm has its own, so that neither arm profits from the other's
        work."""
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR",
                     "NUMBA_CACHE_DIR", "CUDA_CACHE_PATH"):
            env[name] = str(self.work / f"cache-{arm}" / name.lower())
        env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        return env

    def limit(self, seconds):
        return min(time.monotonic() + seconds, self.deadline)
