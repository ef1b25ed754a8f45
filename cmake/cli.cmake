# The command `ramet` and its tests. Only this room needs jansson (it reads other programs' JSON).
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
include(GNUInstallDirs)

file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
list(REMOVE_ITEM cli_sources ${PROJECT_SOURCE_DIR}/src/cli/main.c)
add_library(ramet_cli STATIC ${cli_sources})
target_link_libraries(ramet_cli PUBLIC ramet_engine PkgConfig::JANSSON m)
# Where the bundled models are: installed, or beside the sources while the program runs from its build tree.
target_compile_definitions(ramet_cli PRIVATE
  RAMET_SHARE_DIR="${CMAKE_INSTALL_FULL_DATADIR}/ramet"
  RAMET_BUILD_DIR="${PROJECT_BINARY_DIR}"
  RAMET_SOURCE_SHARE_DIR="${PROJECT_SOURCE_DIR}/share")

add_executable(ramet ${PROJECT_SOURCE_DIR}/src/cli/main.c)
target_link_libraries(ramet PRIVATE ramet_cli)

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME cli COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/cli/test_cli.py $<TARGET_FILE:ramet>)
  set_tests_properties(cli PROPERTIES LABELS quick TIMEOUT 300)
  add_test(NAME bench_scripts COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/bench/test_bench_scripts.py)
  set_tests_properties(bench_scripts PROPERTIES LABELS quick TIMEOUT 60)
endif()
