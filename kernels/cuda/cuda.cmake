# The CUDA half of normd_kernels (kernels/CMakeLists.txt), from which it is included.
# Whether there is a CUDA backend is decided here, by the files that are linked. Absence of the toolkit is no error.
set(NORMD_CUDA_FOUND OFF)
if(NORMD_CUDA)
  # CMake 3.25.1, which Debian 12 has, deprecates CUDA::nvToolsExt for projects that ask for 3.25, without a look whether
  # the toolkit has it, and that of CUDA 13 does not.
  set(minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  find_package(CUDAToolkit QUIET)
  set(CMAKE_MINIMUM_REQUIRED_VERSION ${minimum})
  include(CheckLanguage)
  check_language(CUDA)
  # 12.5: the driver's entry points by version, and C++20.
  if(TARGET CUDA::cudart_static AND CMAKE_CUDA_COMPILER AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.5)
    set(NORMD_CUDA_FOUND ON)
  elseif(CUDAToolkit_FOUND AND NOT CMAKE_CUDA_COMPILER)
    message(STATUS "CUDA Toolkit ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}, but no nvcc on the PATH")
  elseif(CUDAToolkit_FOUND)
    message(STATUS "CUDA Toolkit ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}: 12.5 or newer is needed")
  endif()
endif()
if(NORMD_CUDA_FOUND)
  include(cuda/architectures.cmake)
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc takes it.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  add_library(normd_cuda_kernels OBJECT
    cuda/apply.cu
    cuda/column_apply.cu
    cuda/column_groups.cu
    cuda/column_sums.cu
    cuda/elementwise.cu
    cuda/group_tiles.cu
    cuda/nearest.cu
    cuda/nearest_rows.cu
    cuda/register_rows.cu
    cuda/staged_rows.cu
    cuda/rows.cu
    cuda/statistics.cu
    cuda/fused_rows.cu)
  target_include_directories(normd_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR})
  # No contraction: the bytes are the CPU's. The report of registers and spills is kept beside each object, where
  # tests/device/check_ptxas.py reads it.
  target_compile_options(normd_cuda_kernels PRIVATE
    --fmad=false --expt-relaxed-constexpr -Xptxas=-v -Xcompiler=-Wall,-Wextra
    # 20 MB of device code otherwise. CUDA 12.8 brought the option, and drivers that load what it makes.
    $<$<VERSION_GREATER_EQUAL:${CMAKE_CUDA_COMPILER_VERSION},12.8>:--compress-mode=size>)
  # Without a launcher behind it the list has one element: an empty one would be run as if it were the compiler.
  set_target_properties(normd_cuda_kernels PROPERTIES
    CUDA_COMPILER_LAUNCHER "${CMAKE_CURRENT_LIST_DIR}/keep_report.sh")
  if(CMAKE_CUDA_COMPILER_LAUNCHER)
    set_property(TARGET normd_cuda_kernels APPEND PROPERTY CUDA_COMPILER_LAUNCHER ${CMAKE_CUDA_COMPILER_LAUNCHER})
  endif()
  set(cuda_host_sources
    cuda/allocation_size.cc
    cuda/arena.cc
    cuda/backend.cc
    cuda/device_memory.cc
    cuda/ipc.cc
    cuda/job_list.cc
    cuda/nearest_jobs.cc
    cuda/prepared_parameters.cc
    cuda/probe.cc
    cuda/run.cc
    cuda/staging.cc
    cuda/status.cc)
  # Each by itself in a unity build: a test that brings an emulated one takes no other file's code with it.
  set_source_files_properties(${cuda_host_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(normd_kernels PRIVATE ${cuda_host_sources} $<TARGET_OBJECTS:normd_cuda_kernels>)
  target_link_libraries(normd_kernels PRIVATE CUDA::cudart_static)
else()
  message(STATUS "built without CUDA kernels: no CUDA Toolkit, or NORMD_CUDA is off")
  set_source_files_properties(cuda/no_cuda.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # for the same reason
  target_sources(normd_kernels PRIVATE cuda/no_cuda.cc)
endif()
