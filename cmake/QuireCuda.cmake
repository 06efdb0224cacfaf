# CUDA is optional. QUIRE_CUDA says whether the backend for NVIDIA GPUs is built:
#   AUTO  if nvcc is found (the default)
#   ON    yes; without nvcc the configuration fails
#   OFF   no
# The kernels are compiled for compute capability 9.0a and, as PTX for every later chip, for 8.0. Another list:
# -DQUIRE_CUDA_ARCHITECTURES=80-virtual, for example, has the driver compile everything.
set(QUIRE_CUDA AUTO CACHE STRING "The backend for NVIDIA GPUs: AUTO (if nvcc is found), ON, OFF")
set(QUIRE_CUDA_ARCHITECTURES 80-virtual 90a-real CACHE STRING "What the kernels are compiled for, as CMake names it")

set(QUIRE_HAS_CUDA OFF)
if(NOT QUIRE_CUDA STREQUAL "OFF" AND NOT QUIRE_STATE_ONLY)
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin /opt/cuda/bin)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${QUIRE_CUDA_ARCHITECTURES})
    set(CMAKE_CUDA_HOST_COMPILER g++ CACHE STRING "The compiler that nvcc uses for the host's part")
    enable_language(CUDA)
    # Without these, targets of CUDA code would get the standard of the C++ code, which nvcc does not have. CMake 3.25 does
    # not know how nvcc 13 names C++20.
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    find_package(CUDAToolkit 12.0 REQUIRED)
    set(QUIRE_HAS_CUDA ON)
  elseif(QUIRE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "QUIRE_CUDA is ON, but nvcc was not found in PATH or /usr/local/cuda/bin")
  endif()
endif()
message(STATUS "The backend for NVIDIA GPUs: ${QUIRE_HAS_CUDA}")
