"""Tensor maps: 128 opaque bytes that device code reads; the driver computes them from their
arguments."""

chapter("tensor map")
opaque("CUtensorMap", 128)
_RANK = dict(max=5, over="CUDA_ERROR_INVALID_VALUE")  # the driver's own limit
_SHAPE = dict(lane="reply", tensorMap=out(), globalAddress=address(),
              globalDim=array_in("tensorRank",
                                 **_RANK), globalStrides=array_in("tensorRank", less=1, **_RANK),
              elementStrides=array_in("tensorRank", **_RANK))
call("cuTensorMapEncodeTiled", boxDim=array_in("tensorRank", **_RANK), **_SHAPE)
call("cuTensorMapEncodeIm2col", pixelBoxLowerCorner=array_in("tensorRank", less=2, **_RANK),
     pixelBoxUpperCorner=array_in("tensorRank", less=2, **_RANK), **_SHAPE)
call("cuTensorMapEncodeIm2colWide", **_SHAPE)
call("cuTensorMapReplaceAddress", lane="reply", tensorMap=inout(), globalAddress=address())
