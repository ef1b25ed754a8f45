# One object library per room; a room links only rooms of lower rank (scripts/check_layers.py checks the includes too).
function(ramet_room name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.c)
  add_library(ramet_${name} STATIC ${sources})
  target_include_directories(ramet_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(ramet_${name} PUBLIC ${ARGN})
endfunction()

ramet_room(base Threads::Threads PkgConfig::CRYPTO PkgConfig::XXHASH)
# xxHash chooses its instructions at run time where its library was built to: three times the speed on x86-64.
include(CheckSymbolExists)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::XXHASH)
check_symbol_exists(XXH3_128bits_dispatch xxh_x86dispatch.h RAMET_XXH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)
set_source_files_properties(src/base/hash.c PROPERTIES COMPILE_DEFINITIONS RAMET_XXH_DISPATCH=$<BOOL:${RAMET_XXH_DISPATCH}>)
ramet_room(numerics ramet_base m)
ramet_room(model ramet_numerics)
ramet_room(text ramet_numerics PkgConfig::PCRE2)
ramet_room(state ramet_numerics)
ramet_room(kernels ramet_numerics)
ramet_room(sample ramet_numerics)
ramet_room(forward ramet_model ramet_state ramet_kernels)
ramet_room(store ramet_state)
ramet_room(engine ramet_forward ramet_store ramet_text ramet_sample)

# Only these files may use instructions that dispatch.c has to ask for. Unrolled kernels take minutes under a sanitizer.
if(RAMET_SANITIZE)
  set(kernel_options ";-O1;-DRAMET_SANITIZED")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB avx2_sources ${PROJECT_SOURCE_DIR}/src/kernels/x86/*avx2*.c)
  file(GLOB avx512_sources ${PROJECT_SOURCE_DIR}/src/kernels/x86/*avx512*.c)
  set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-mbmi2${kernel_options}")
  set(avx512_options "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mfma;-mf16c${kernel_options}")
  set_source_files_properties(${avx512_sources} PROPERTIES COMPILE_OPTIONS "${avx512_options}")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  file(GLOB neon_sources ${PROJECT_SOURCE_DIR}/src/kernels/arm/*.c)
  set_source_files_properties(${neon_sources} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod${kernel_options}")
endif()

# Which build this is; asked of git at configure time, "unknown" outside a checkout.
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE commit_failed)
if(commit_failed)
  set(commit unknown)
endif()
set_source_files_properties(src/engine/version.c PROPERTIES COMPILE_DEFINITIONS
  "RAMET_VERSION_TEXT=\"${PROJECT_VERSION}\";RAMET_COMMIT_TEXT=\"${commit}\"")
