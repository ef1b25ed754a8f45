# ramet-checkkern: the kernel test and the kernel bench in one program. Its control must see tables that add backwards.
file(GLOB checkkern_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/checkkern*.c)
add_executable(ramet-checkkern ${checkkern_sources})
target_link_libraries(ramet-checkkern PRIVATE ramet_kernels)
file(GLOB freed_sources ${PROJECT_SOURCE_DIR}/tools/checkkern_freed*.c)
set_source_files_properties(${freed_sources} PROPERTIES COMPILE_OPTIONS "${avx512_options}")
add_test(NAME checkkern COMMAND ramet-checkkern)
add_test(NAME checkkern_control COMMAND ramet-checkkern --control)
set_tests_properties(checkkern checkkern_control PROPERTIES LABELS quick TIMEOUT 300)

# ramet-statebench: what fork, drop, one more position and prefix match cost. It measures and checks nothing.
add_executable(ramet-statebench ${PROJECT_SOURCE_DIR}/tools/statebench.c)
target_link_libraries(ramet-statebench PRIVATE ramet_state)

# ramet-storm: a thousand contexts in the memory of a few; what the process grew by against the budget, and the logits.
add_executable(ramet-storm ${PROJECT_SOURCE_DIR}/tools/storm.c)
target_link_libraries(ramet-storm PRIVATE ramet_engine)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT RAMET_SANITIZE) # /proc, and memory that is the program's own
  set(storm ramet-storm -steps 600 -length 96)
  set(storm_model ${PROJECT_SOURCE_DIR}/share/models/tiny-llama-kjv-q8_0.gguf)
  add_test(NAME storm COMMAND ${storm} ${storm_model})
  add_test(NAME storm_control COMMAND ${storm} -control 1 ${storm_model})
  set_tests_properties(storm storm_control PROPERTIES LABELS quick TIMEOUT 300)
endif()
