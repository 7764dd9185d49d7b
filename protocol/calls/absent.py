"""What cannot be had, and why. The rest of the header that is named nowhere is for a later
issue."""

chapter("graphics")
absent("cuGraphicsMapResources", "cuGraphicsUnmapResources",
       "cuGraphicsResourceGetMappedMipmappedArray", "cuGraphicsResourceGetMappedPointer",
       "cuGraphicsResourceGetMappedPointer_v2", "cuGraphicsResourceSetMapFlags",
       "cuGraphicsResourceSetMapFlags_v2", "cuGraphicsSubResourceGetMappedArray",
       "cuGraphicsUnregisterResource", why="graphics resources cannot cross a process boundary")
