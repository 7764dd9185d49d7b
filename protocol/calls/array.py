"""CUDA arrays, mipmapped arrays, texture and surface objects, references.

An array's handle is the hook's and travels as an id. Texture and surface objects are seen by device
code, so they carry the driver's own 64-bit value; the proxy keeps a table of those that a client
made and checks it wherever one comes back.
"""

chapter("array")
opaque("CUDA_ARRAY_DESCRIPTOR", 24)
opaque("CUDA_ARRAY3D_DESCRIPTOR", 40)
opaque("CUDA_ARRAY_SPARSE_PROPERTIES", 48)
opaque("CUDA_ARRAY_MEMORY_REQUIREMENTS", 32)
call("cuArrayCreate_v2", "cuArray3DCreate_v2", lane="hand", pHandle=creates("array"),
     pAllocateArray=struct_in(), behind="tried")
call("cuArrayDestroy", lane="hand", needs="init", hArray=frees("array"), behind="tried")
call("cuArrayGetDescriptor_v2", "cuArray3DGetDescriptor_v2", lane="reply", pArrayDescriptor=out())
call("cuArrayGetSparseProperties", "cuMipmappedArrayGetSparseProperties", lane="reply",
     sparseProperties=out())
call("cuArrayGetMemoryRequirements", "cuMipmappedArrayGetMemoryRequirements", lane="reply",
     handler="hand", memoryRequirements=out())
# A plane and a level are arrays that end with the one they are a part of; asking twice gives the
# same handle.
call("cuArrayGetPlane", lane="hand", pPlaneArray=out(), behind="tried")
call("cuMipmappedArrayCreate", lane="hand", pHandle=creates("mipmapped array"),
     pMipmappedArrayDesc=struct_in(), behind="tried")
call("cuMipmappedArrayGetLevel", lane="hand", pLevelArray=out(), behind="tried")
call("cuMipmappedArrayDestroy", lane="hand", hMipmappedArray=frees("mipmapped array"),
     behind="tried")
# The entries hold handles: the hook writes ids in their place.
opaque("CUarrayMapInfo", 96)
call("cuMemMapArrayAsync", lane="hand", mapInfoList=array_in("count", max=256))

chapter("texture")
# CUDA_RESOURCE_DESC holds a handle: an id takes its place on the wire, both ways.
opaque("CUDA_RESOURCE_DESC", 144)
opaque("CUDA_TEXTURE_DESC", 104)
opaque("CUDA_RESOURCE_VIEW_DESC", 112)
call("cuTexObjectCreate", lane="hand", pTexObject=out(), pResDesc=struct_in(), pTexDesc=struct_in(),
     pResViewDesc=nullable(struct_in()), behind="tried")
call("cuSurfObjectCreate", lane="hand", pSurfObject=out(), pResDesc=struct_in(), behind="tried")
call("cuTexObjectDestroy", "cuSurfObjectDestroy", lane="reply", handler="hand", behind="tried")
call("cuTexObjectGetResourceDesc", "cuSurfObjectGetResourceDesc", lane="hand", pResDesc=out())
call("cuTexObjectGetTextureDesc", lane="reply", handler="hand", pTexDesc=out())
call("cuTexObjectGetResourceViewDesc", lane="reply", handler="hand", pResViewDesc=out())

chapter("references")
# No compiler makes references any more, so no module has one; those of cuTexRefCreate are records
# in the process.
call("cuModuleGetTexRef", "cuModuleGetSurfRef", "cuTexRefCreate", "cuTexRefDestroy",
     "cuTexRefGetAddress", "cuTexRefGetAddress_v2", "cuTexRefGetAddressMode", "cuTexRefGetArray",
     "cuTexRefGetBorderColor", "cuTexRefGetFilterMode", "cuTexRefGetFlags", "cuTexRefGetFormat",
     "cuTexRefGetMaxAnisotropy", "cuTexRefGetMipmapFilterMode", "cuTexRefGetMipmapLevelBias",
     "cuTexRefGetMipmapLevelClamp", "cuTexRefGetMipmappedArray", "cuTexRefSetAddress",
     "cuTexRefSetAddress_v2", "cuTexRefSetAddress2D", "cuTexRefSetAddress2D_v2",
     "cuTexRefSetAddress2D_v3", "cuTexRefSetAddressMode", "cuTexRefSetArray",
     "cuTexRefSetBorderColor", "cuTexRefSetFilterMode", "cuTexRefSetFlags", "cuTexRefSetFormat",
     "cuTexRefSetMaxAnisotropy", "cuTexRefSetMipmapFilterMode", "cuTexRefSetMipmapLevelBias",
     "cuTexRefSetMipmapLevelClamp", "cuTexRefSetMipmappedArray", "cuSurfRefGetArray",
     "cuSurfRefSetArray", lane="local")
