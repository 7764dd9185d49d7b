"""Tensor maps: 128 opaque bytes that device code reads; the driver computes them from their arguments."""

chapter("tensor map")
opaque("CUtensorMap", 128)
_SHAPE = dict(lane="reply", tensorMap=out(), globalAddress=address(), globalDim=array_in("tensorRank", max=5),
              globalStrides=array_in("tensorRank", less=1, max=5), elementStrides=array_in("tensorRank", max=5))
call("cuTensorMapEncodeTiled", boxDim=array_in("tensorRank", max=5), **_SHAPE)
call("cuTensorMapEncodeIm2col", pixelBoxLowerCorner=array_in("tensorRank", less=2, max=5),
     pixelBoxUpperCorner=array_in("tensorRank", less=2, max=5), **_SHAPE)
call("cuTensorMapEncodeIm2colWide", **_SHAPE)
call("cuTensorMapReplaceAddress", lane="reply", tensorMap=inout(), globalAddress=address())
