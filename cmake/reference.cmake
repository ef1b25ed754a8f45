# Checks that are programs of their own: layers and format, goldens, exactness, other builds, the installed package.
# Labels: quick (all of them under a minute), full (the rest of `make test`), models (skipped unless `make models` was run).
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(checks ${PROJECT_SOURCE_DIR}/tests/reference)
set(scripts ${PROJECT_SOURCE_DIR}/scripts)
set(fixtures ${PROJECT_SOURCE_DIR}/tests/data/reference/tiny)
set(bundled ${PROJECT_SOURCE_DIR}/share/models/tiny-llama-kjv-q8_0.gguf)

# ramet_check(<name> <label> <seconds> <command>...): exit code 77 means skipped.
function(ramet_check name label seconds)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${seconds} SKIP_RETURN_CODE 77
                       ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endfunction()

ramet_check(layers quick 60 ${Python3_EXECUTABLE} ${scripts}/check_layers.py --self-test)
ramet_check(format quick 60 ${scripts}/format.sh --check)

if(TARGET ramet)
  set(command --ramet $<TARGET_FILE:ramet>)
  foreach(name llama-gqa llama-tied llama-k256 qwen2 qwen3 qwen3-yarn gemma3)
    file(GLOB files CONFIGURE_DEPENDS ${fixtures}/${name}/*.gguf)
    ramet_check(reference_${name} full 600 ${Python3_EXECUTABLE} ${checks}/check_tiny.py ${command} ${name})
    ramet_check(exact_${name} full 900 ${Python3_EXECUTABLE} ${checks}/check_exact.py ${command} --precisions every ${files})
  endforeach()
  ramet_check(exact_bundled full 900 ${Python3_EXECUTABLE} ${checks}/check_exact.py ${command} ${bundled})
  set_tests_properties(reference_gemma3 exact_llama-tied PROPERTIES LABELS quick)

  # Real models, where they were fetched.
  if(DEFINED ENV{RAMET_MODELS})
    set(model_dir $ENV{RAMET_MODELS})
  elseif(DEFINED ENV{XDG_DATA_HOME})
    set(model_dir $ENV{XDG_DATA_HOME}/ramet/models)
  else()
    set(model_dir $ENV{HOME}/.local/share/ramet/models)
  endif()
  set(smollm2 ${model_dir}/SmolLM2-135M-Instruct.Q4_1.gguf)
  set(gemma3 ${model_dir}/gemma3-270m-q4_k_m.gguf)
  ramet_check(reference_smollm2 models 1200 ${Python3_EXECUTABLE} ${checks}/check_real.py ${command} smollm2-135m-q4_1 ${smollm2})
  ramet_check(reference_gemma3_270m models 1200 ${Python3_EXECUTABLE} ${checks}/check_real.py ${command} gemma3-270m-q4_k_m
              ${gemma3})
  ramet_check(exact_smollm2 models 1200 ${Python3_EXECUTABLE} ${checks}/check_exact.py ${command} --tokens 300 ${smollm2})
  ramet_check(exact_gemma3_270m models 1800 ${Python3_EXECUTABLE} ${checks}/check_exact.py ${command} --tokens 700 --rows 640:700
              ${gemma3})

  # The package as a stranger uses it, and the other builds. Each of these keeps all cores busy by itself.
  set(own_builds installed)
  ramet_check(installed full 300 ${scripts}/check_install.sh ${PROJECT_BINARY_DIR})
  foreach(preset clang debug tsan teeth)
    ramet_check(build_${preset} full 1500 ${scripts}/ci_variant.sh ${preset})
    list(APPEND own_builds build_${preset})
  endforeach()
  ramet_check(golden_builds full 900 ${scripts}/check_golden.sh)
  list(APPEND own_builds golden_builds)
  if(NOT CMAKE_CROSSCOMPILING)
    ramet_check(arm64 full 1200 ${scripts}/check_arm64.sh $<TARGET_FILE:ramet>)
    list(APPEND own_builds arm64)
  endif()
  set_tests_properties(${own_builds} PROPERTIES RUN_SERIAL ON)
endif()
