# The shim in front of the C library's file calls, linked into tests and to be preloaded; and what only runs with it.
add_library(ramet_faults STATIC ${CMAKE_CURRENT_LIST_DIR}/shim.c ${CMAKE_CURRENT_LIST_DIR}/crash.c)
target_include_directories(ramet_faults PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(ramet_faults PUBLIC ${CMAKE_DL_LIBS} Threads::Threads)
foreach(name test_store_faults test_store_crash test_store_spill test_engine_faults)
  target_link_libraries(${name} PRIVATE ramet_faults)
endforeach()

# A process that is killed at random moments: `make kill-test` does it 10,000 times.
add_executable(ramet-killtest ${CMAKE_CURRENT_LIST_DIR}/kill.c)
target_link_libraries(ramet-killtest PRIVATE ramet_engine)
target_compile_definitions(ramet-killtest PRIVATE RAMET_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
add_test(NAME kill COMMAND ramet-killtest 200)
add_test(NAME kill_control COMMAND ramet-killtest --control 200)
set_tests_properties(kill kill_control PROPERTIES LABELS quick TIMEOUT 300)

# The same shim in front of the whole command.
if(TARGET ramet)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_library(ramet_faults_preload MODULE ${CMAKE_CURRENT_LIST_DIR}/shim.c)
  target_include_directories(ramet_faults_preload PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(ramet_faults_preload PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
  add_test(NAME faults_ctx_build COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/check_build.py
           $<TARGET_FILE:ramet> $<TARGET_FILE:ramet_faults_preload>
           ${PROJECT_SOURCE_DIR}/share/models/tiny-llama-kjv-q8_0.gguf)
  set_tests_properties(faults_ctx_build PROPERTIES LABELS quick TIMEOUT 300 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
