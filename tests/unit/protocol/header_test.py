"""The descriptions against the toolkit: names, versions, numbers, and whether each call is still
what it was.

header_test.py PROTOCOL_FOLDER CUDA_HOME STUB_LIBRARY
"""
import pathlib
import sys
import unittest

PROTOCOL, CUDA_HOME, STUB = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(PROTOCOL / "gen"))

import cuda_header  # noqa: E402
import describe  # noqa: E402
import emit_hook  # noqa: E402
import model as model_module  # noqa: E402

API = cuda_header.load(CUDA_HOME)
MODEL = model_module.Model(API, describe.load(PROTOCOL / "calls"))
LOCK = model_module.read_lock(PROTOCOL / "numbers.lock")
ROWS = {(r.base, r.version, r.per_thread): r.symbol for r in API.proc_rows}

# The entry points that real programs were seen to call (counted in front of a
# real driver).
SEEN = """cuCtxGetCurrent cuCtxGetDevice cuCtxGetDevice_v2 cuCtxGetLimit cuCtxGetStreamPriorityRange cuCtxPopCurrent_v2
cuCtxPushCurrent_v2 cuCtxSetCurrent cuCtxSynchronize cuCtxSynchronize_v2 cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount
cuDeviceGetName cuDeviceGetPCIBusId cuDeviceGetUuid cuDevicePrimaryCtxGetState cuDevicePrimaryCtxRelease
cuDevicePrimaryCtxRetain cuDeviceTotalMem_v2 cuDriverGetVersion cuEventCreate cuEventDestroy_v2 cuEventElapsedTime_v2
cuEventQuery cuEventRecord cuEventRecordWithFlags cuEventSynchronize cuFuncGetAttribute cuFuncSetAttribute
cuFuncSetCacheConfig cuGetErrorString cuGetExportTable cuGetProcAddress_v2 cuGraphDestroy cuGraphExecDestroy cuGraphGetNodes
cuGraphInstantiateWithFlags cuGraphLaunch cuInit cuKernelGetAttribute cuKernelGetFunction cuKernelGetParamInfo
cuKernelSetAttribute cuLaunchHostFunc cuLaunchKernel cuLaunchKernelEx cuLibraryGetGlobal cuLibraryGetKernel cuLibraryLoadData
cuLibraryUnload cuMemAddressFree cuMemAddressReserve cuMemAlloc_v2 cuMemCreate cuMemFreeHost cuMemFree_v2
cuMemGetAllocationGranularity cuMemGetInfo_v2 cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuMemMap cuMemRelease
cuMemSetAccess cuMemUnmap cuMemcpyDtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2 cuMemcpyHtoDAsync_v2 cuMemcpyHtoD_v2
cuMemsetD32Async cuMemsetD8Async cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleGetLoadingMode cuModuleLoad
cuModuleLoadData cuModuleUnload cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor
cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters cuPointerGetAttribute
cuPointerGetAttributes cuStreamBeginCapture_v2 cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2
cuStreamEndCapture cuStreamGetCaptureInfo_v3 cuStreamIsCapturing cuStreamQuery cuStreamSynchronize cuStreamWaitEvent
cuTensorMapEncodeTiled cuThreadExchangeStreamCaptureMode""".split()


class Header(unittest.TestCase):
    def test_the_header_declares_exactly_what_the_stub_exports(self):
        self.assertEqual(sorted(API.functions), cuda_header.exported_names(STUB))

    def test_signatures_of_old_and_new_abis_are_told_apart(self):
        functions = API.functions
        self.assertEqual(str(functions["cuMemAlloc"]),
                         "CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)")
        self.assertEqual(str(functions["cuMemAlloc_v2"]),
                         "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)")
        self.assertEqual(functions["cuMemcpyHtoD_v2_ptds"].plain, "cuMemcpyHtoD_v2")
        self.assertEqual(functions["cuLaunchKernel_ptsz"].stream_params(), ["hStream"])
        for f in functions.values():
            if f.per_thread:
                self.assertIn(f.plain, functions)
                self.assertEqual([p.ctype for p in f.params],
                                 [p.ctype for p in functions[f.plain].params], f.name)

    def test_versions_map_to_symbols(self):
        self.assertEqual(ROWS["cuCtxCreate", 2000, False], "cuCtxCreate")
        self.assertEqual(ROWS["cuCtxCreate", 3020, False], "cuCtxCreate_v2")
        self.assertEqual(ROWS["cuCtxCreate", 12050, False], "cuCtxCreate_v4")
        self.assertEqual(ROWS["cuGraphInstantiate", 11000, False], "cuGraphInstantiate_v2")
        self.assertEqual(ROWS["cuCtxGetDevice", 13000, False], "cuCtxGetDevice_v2")
        self.assertEqual(ROWS["cuMemcpyHtoD", 7000, True], "cuMemcpyHtoD_v2_ptds")
        self.assertEqual(ROWS["cuGetProcAddress", 12000, False], "cuGetProcAddress_v2")
        self.assertEqual(sorted(ROWS.values()), sorted(API.functions),
                         "every export is reachable, each by one row")


class Descriptions(unittest.TestCase):
    def test_calls_of_real_programs_are_described(self):
        lanes = {name: emit_hook.resolve(MODEL, MODEL.calls[name]).lane for name in SEEN}
        self.assertEqual(
            {
                n: l for n, l in lanes.items() if l not in ("local", "post", "reply", "hand")
            }, {})

    def test_per_thread_forms_follow_their_plain_form(self):
        for call in MODEL.exported():
            if call.function.per_thread:
                plain = emit_hook.resolve(MODEL, MODEL.calls[call.function.plain])
                self.assertIs(emit_hook.resolve(MODEL, call), plain)

    def test_messages_named_in_uses_exist(self):
        for call in MODEL.exported():
            for used in call.uses:
                self.assertTrue(MODEL.calls[used].on_wire, f"{call.name} uses {used}")

    def test_every_exported_name_has_an_entry_and_a_row(self):
        entries, table = emit_hook.entries(MODEL), emit_hook.proc_table(MODEL)
        for name in API.functions:
            self.assertEqual(entries.count(f"TUBE_EXPORT CUresult {name}("), 1, name)
            self.assertEqual(table.count(f"&::{name})"), 1, name)


class Numbers(unittest.TestCase):
    def test_every_call_on_the_wire_has_a_number_of_its_own(self):
        MODEL.number(LOCK)
        self.assertEqual(len({c.number for c in MODEL.wire}), len(MODEL.wire))

    def test_numbers_are_only_appended(self):
        self.assertEqual(list(LOCK.values()), list(range(1,
                                                         len(LOCK) + 1)),
                         "numbers.lock is in order and has no gaps")
        self.assertEqual(LOCK["tubeSignal"], 1)
        self.assertEqual(LOCK["tubeLaunch"], 19)

    def test_records_stay_small(self):
        for call in MODEL.wire:
            self.assertLessEqual(call.request.size, 1024, call.name)
            replies = call.reply.size + sum(f.max_bytes + 8 for f in call.reply.blobs)
            self.assertLessEqual(replies, 16 * 1024 - 32,
                                 f"{call.name}: its reply may not fit a reply slot")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
