# Fuzz targets: tests/fuzz/fuzz_<name>.c. Every build has them as fuzz_<name>_replay, which runs the committed corpus and
# some mutations of it; a build with the sanitizer fuzzer-no-link (preset fuzz) also as fuzz_<name>, with libFuzzer.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux") # files in memory, and --wrap
  set(fuzz_dir ${PROJECT_SOURCE_DIR}/tests/fuzz)

  function(fuzz_program name sources libraries)
    add_executable(${name} ${sources} ${fuzz_dir}/fuzz.c)
    target_include_directories(${name} PRIVATE ${fuzz_dir} ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${name} PRIVATE RAMET_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
    target_link_libraries(${name} PRIVATE ${libraries})
    if("${sources}" MATCHES "heap_map")
      foreach(function open close forget)
        target_link_options(${name} PRIVATE -Wl,--wrap=ramet_file_map_${function})
      endforeach()
    endif()
  endfunction()

  # fuzz_target(<name> <mutations of each seed in the quick test> <libraries> <sources>...)
  function(fuzz_target name mutations libraries)
    list(TRANSFORM ARGN PREPEND ${fuzz_dir}/ OUTPUT_VARIABLE sources)
    list(APPEND sources ${fuzz_dir}/fuzz_${name}.c)
    fuzz_program(fuzz_${name}_replay "${sources};${fuzz_dir}/replay.c" "${libraries}")
    set(replay fuzz_${name}_replay ${fuzz_dir}/corpus/${name})
    add_test(NAME fuzz_${name} COMMAND ${replay} --mutations ${mutations})
    add_test(NAME fuzz_${name}_control COMMAND ${replay} --control)
    set_tests_properties(fuzz_${name} fuzz_${name}_control PROPERTIES LABELS quick TIMEOUT 300)
    # What a control finds ends it in the middle of its work.
    set_tests_properties(fuzz_${name}_control PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
    if(RAMET_SANITIZE MATCHES "fuzzer")
      fuzz_program(fuzz_${name} "${sources}" "${libraries}")
      target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    endif()
  endfunction()

  fuzz_target(gguf 100 ramet_engine gguf_mutate.c heap_map.c text_checks.c)
  fuzz_target(lora 300 ramet_engine gguf_mutate.c heap_map.c)
  fuzz_target(tokenizer 100 "ramet_text;PkgConfig::CMOCKA" text_checks.c)
  fuzz_target(snapshot 300 "ramet_store;PkgConfig::CMOCKA" snapshot_mutate.c snapshot_seal.c)
  if(TARGET ramet_cli)
    fuzz_target(cli 300 ramet_cli)
  endif()

  # All targets for a minute each: what `make fuzz FUZZ_SECONDS=60` does.
  find_program(clang clang)
  if(TARGET ramet_cli AND clang AND NOT RAMET_SANITIZE)
    add_test(NAME fuzz_minute COMMAND ${fuzz_dir}/run.sh 60)
    set_tests_properties(fuzz_minute PROPERTIES LABELS full TIMEOUT 1500 RUN_SERIAL ON SKIP_RETURN_CODE 77)
  endif()
endif()
