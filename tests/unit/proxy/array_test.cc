// Arrays, texture and surface objects of a session: whose they are, what a hostile description can
// name, and in which order they end.
#include "tests/unit/proxy/session_fixture.h"

namespace tube::proxy {
namespace {

class ArrayTest : public SessionTest {
 protected:
  void create_array(uint64_t id) {
    wire::cuArray3DCreate_v2 create{};
    create.pHandle = id;
    EXPECT_EQ(call(create, static_cast<wire::cuArray3DCreate_v2_reply*>(nullptr)), CUDA_SUCCESS);
  }
  void create_mipmap(uint64_t id) {
    wire::cuMipmappedArrayCreate create{};
    create.pHandle = id;
    create.numMipmapLevels = 3;
    EXPECT_EQ(call(create, static_cast<wire::cuMipmappedArrayCreate_reply*>(nullptr)),
              CUDA_SUCCESS);
  }
  uint64_t level(uint64_t mipmap, uint32_t index) {
    wire::cuMipmappedArrayGetLevel get{};
    get.hMipmappedArray = mipmap;
    get.level = index;
    wire::cuMipmappedArrayGetLevel_reply reply{};
    EXPECT_EQ(call(get, &reply), CUDA_SUCCESS);
    return reply.pLevelArray;
  }
  uint64_t plane(uint64_t array) {
    wire::cuArrayGetPlane get{};
    get.hArray = array;
    wire::cuArrayGetPlane_reply reply{};
    EXPECT_EQ(call(get, &reply), CUDA_SUCCESS);
    return reply.pPlaneArray;
  }
  CUresult destroy_array(uint64_t id) {
    wire::cuArrayDestroy destroy{};
    destroy.hArray = id;
    return call(destroy, static_cast<wire::cuArrayDestroy_reply*>(nullptr));
  }
  CUresult destroy_mipmap(uint64_t id) {
    wire::cuMipmappedArrayDestroy destroy{};
    destroy.hMipmappedArray = id;
    return call(destroy, static_cast<wire::cuMipmappedArrayDestroy_reply*>(nullptr));
  }
  CUresult describe(uint64_t id) {
    wire::cuArray3DGetDescriptor_v2 get{};
    get.hArray = id;
    wire::cuArray3DGetDescriptor_v2_reply reply{};
    return call(get, &reply);
  }

  // Descriptions as a client sends them: ids where handles stand.
  static CUDA_RESOURCE_DESC of_array(uint64_t id, uint32_t type = CU_RESOURCE_TYPE_ARRAY) {
    CUDA_RESOURCE_DESC desc{};
    std::memcpy(&desc.resType, &type, sizeof(type));
    std::memcpy(&desc.res, &id, sizeof(id));
    return desc;
  }
  static CUDA_RESOURCE_DESC of_linear(uint64_t address, uint64_t bytes) {
    CUDA_RESOURCE_DESC desc{};
    desc.resType = CU_RESOURCE_TYPE_LINEAR;
    desc.res.linear = {address, CU_AD_FORMAT_FLOAT, 1, bytes};
    return desc;
  }
  static CUDA_RESOURCE_DESC of_pitch(uint64_t address, uint64_t width, uint64_t height,
                                     uint64_t pitch) {
    CUDA_RESOURCE_DESC desc{};
    desc.resType = CU_RESOURCE_TYPE_PITCH2D;
    desc.res.pitch2D = {address, CU_AD_FORMAT_FLOAT, 4, width, height, pitch};
    return desc;
  }
  CUresult create_texture(const CUDA_RESOURCE_DESC& desc, uint64_t* handle = nullptr) {
    wire::cuTexObjectCreate create{};
    std::memcpy(create.pResDesc, &desc, sizeof(desc));
    wire::cuTexObjectCreate_reply reply{};
    const CUresult result = call(create, &reply);
    if (handle != nullptr) *handle = reply.pTexObject;
    return result;
  }
  CUresult destroy_texture(uint64_t handle) {
    wire::cuTexObjectDestroy destroy{};
    destroy.texObject = handle;
    return call(destroy, static_cast<wire::cuTexObjectDestroy_reply*>(nullptr));
  }
};

TEST_F(ArrayTest, ALevelIsTheSameEveryTimeAndEndsWithItsArray) {
  create_mipmap(make_id(1, 1));
  const uint64_t first = level(make_id(1, 1), 0), second = level(make_id(1, 1), 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(level(make_id(1, 1), 0), first);
  EXPECT_EQ(describe(second), CUDA_SUCCESS);
  EXPECT_EQ(destroy_mipmap(make_id(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(describe(first), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(describe(second), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(test::fake().live_mipmaps, 0);
}

TEST_F(ArrayTest, ALevelIsNotDestroyedByItself) {
  create_mipmap(make_id(1, 1));
  const uint64_t first = level(make_id(1, 1), 0);
  EXPECT_EQ(destroy_array(first), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(describe(first), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().live_arrays, 0);
}

TEST_F(ArrayTest, PartsOfAnArrayAndOfAMipmappedArrayWithTheSameNumberAreApart) {
  create_mipmap(make_id(1, 1));
  create_array(make_id(1, 1));
  const uint64_t of_mipmap = level(make_id(1, 1), 0), of_plain = plane(make_id(1, 1));
  EXPECT_EQ(destroy_array(make_id(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(describe(of_plain), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(describe(of_mipmap), CUDA_SUCCESS);
}

TEST_F(ArrayTest, ATextureNamesOnlyTheClientsArrays) {
  create_array(make_id(1, 1));
  EXPECT_EQ(create_texture(of_array(make_id(1, 1))), CUDA_SUCCESS);
  for (uint64_t id : {make_id(1, 2), make_id(2, 1), uint64_t{0}, ~uint64_t{0}}) {
    EXPECT_EQ(create_texture(of_array(id)), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(create_texture(of_array(make_id(1, 1), CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(create_texture(of_array(make_id(1, 1), 77)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(test::fake().live_textures, 1);
}

TEST_F(ArrayTest, ATextureOfMemoryStaysInsideWhatTheClientOwns) {
  const uint64_t a = allocate(4096);
  EXPECT_EQ(create_texture(of_linear(a, 4096)), CUDA_SUCCESS);
  EXPECT_EQ(create_texture(of_pitch(a, 16, 16, 256)), CUDA_SUCCESS);
  // Not 4096, 4097: what lies between belongs to the allocation's granule.
  for (uint64_t bytes : {uint64_t{1} << 40, uint64_t{1} << 60, ~uint64_t{0}}) {
    EXPECT_EQ(create_texture(of_linear(a, bytes)), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(create_texture(of_linear(0x1000, 16)), CUDA_ERROR_INVALID_VALUE);
  for (uint64_t big : {uint64_t{1} << 32, uint64_t{1} << 47, uint64_t{1} << 60, ~uint64_t{0}}) {
    EXPECT_EQ(create_texture(of_pitch(a, big, 16, 256)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(create_texture(of_pitch(a, 16, big, 256)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(create_texture(of_pitch(a, 16, 16, big)), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(create_texture(of_pitch(a, big, big, big)), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(test::fake().live_textures, 2);
}

TEST_F(ArrayTest, OnlyOwnObjectsAreDestroyed) {
  create_array(make_id(1, 1));
  uint64_t handle = 0;
  ASSERT_EQ(create_texture(of_array(make_id(1, 1)), &handle), CUDA_SUCCESS);
  EXPECT_EQ(destroy_texture(handle + 1), CUDA_SUCCESS);
  EXPECT_EQ(destroy_texture(0), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().live_textures, 1);
  wire::cuSurfObjectDestroy surface{};
  surface.surfObject = handle;
  EXPECT_EQ(call(surface, static_cast<wire::cuSurfObjectDestroy_reply*>(nullptr)), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().live_textures, 1);
  EXPECT_EQ(destroy_texture(handle), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().live_textures, 0);
  EXPECT_EQ(destroy_texture(handle), CUDA_SUCCESS);
  EXPECT_EQ(test::fake().live_textures, 0);
}

TEST_F(ArrayTest, ACopyNamesOnlyTheClientsArrays) {
  const uint64_t a = allocate(4096);
  create_array(make_id(1, 1));
  wire::tubeCopy3D copy{};
  copy.src = a;
  copy.dst_kind = wire::SideKind::kArray;
  copy.src_pitch = copy.dst_pitch = 64;
  copy.src_height = copy.dst_height = 1;
  copy.extent[0] = 64, copy.extent[1] = copy.extent[2] = 1;
  copy.release_chunk = 0xffffffffu;
  copy.dst = make_id(1, 1);
  post(copy);
  EXPECT_EQ(async_error(), 0u);
  copy.dst = make_id(1, 7);
  post(copy);
  EXPECT_EQ(async_error(), static_cast<uint32_t>(CUDA_ERROR_INVALID_HANDLE));
  copy.dst_kind = static_cast<wire::SideKind>(3);
  post(copy);
  EXPECT_TRUE(session->poisoned()) << "no kind that there is";
}

TEST_F(ArrayTest, MemoryRequirementsAskForADeviceThatIsThere) {
  create_array(make_id(1, 1));
  wire::cuArrayGetMemoryRequirements get{};
  get.array = make_id(1, 1);
  wire::cuArrayGetMemoryRequirements_reply reply{};
  for (int32_t device : {1, 64, -1, INT32_MIN}) {
    get.device = device;
    EXPECT_EQ(call(get, &reply), CUDA_ERROR_INVALID_DEVICE);
  }
}

TEST_F(ArrayTest, EverythingGoesWithTheClientObjectsBeforeArrays) {
  create_array(make_id(1, 1));
  create_mipmap(make_id(1, 1));
  (void)level(make_id(1, 1), 0);
  (void)plane(make_id(1, 1));
  EXPECT_EQ(create_texture(of_array(make_id(1, 1), CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)),
            CUDA_SUCCESS);
  wire::cuSurfObjectCreate surface{};
  const CUDA_RESOURCE_DESC desc = of_array(make_id(1, 1));
  std::memcpy(surface.pResDesc, &desc, sizeof(desc));
  wire::cuSurfObjectCreate_reply reply{};
  EXPECT_EQ(call(surface, &reply), CUDA_SUCCESS);
  test::fake().calls.clear();
  session->teardown_for_test();
  EXPECT_EQ(test::fake().calls,
            (std::vector<std::string>{"texture", "surface", "mipmap", "array"}));
}

}  // namespace
}  // namespace tube::proxy
