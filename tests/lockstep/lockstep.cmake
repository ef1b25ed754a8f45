# Lockstep walks of the state and store rooms: their parts, the quick test's link to them, ramet-soak, and teeth.
# tests/teeth/break_*.c take the place of one function each (--wrap, where the linker has it): a broken state room, without
# a line for it in src/.
file(GLOB lockstep_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/lockstep/*.c)
list(REMOVE_ITEM lockstep_sources ${PROJECT_SOURCE_DIR}/tests/lockstep/soak.c)
add_library(lockstep STATIC ${lockstep_sources} ${PROJECT_SOURCE_DIR}/tests/model/twin.c
            ${PROJECT_SOURCE_DIR}/tests/model/twin_tree.c)
target_include_directories(lockstep PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(lockstep PUBLIC ramet_store)
target_link_libraries(test_state_lockstep PRIVATE lockstep)

add_executable(ramet-soak ${PROJECT_SOURCE_DIR}/tests/lockstep/soak.c)
target_link_libraries(ramet-soak PRIVATE lockstep)

# state_teeth(<fault> <function that it replaces> <numbers that must be named>...)
function(state_teeth fault function)
  set(name state_teeth_${fault})
  add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/teeth/state_teeth.c)
  if(NOT fault STREQUAL none)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/teeth/break_${fault}.c)
    target_link_options(${name} PRIVATE -Wl,--wrap=${function})
  endif()
  target_link_libraries(${name} PRIVATE lockstep)
  add_test(NAME ${name} COMMAND ${name} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS quick TIMEOUT 300)
endfunction()

if(NOT APPLE)
  state_teeth(none none none)
  state_teeth(copy ramet_block_copy K1 K4)
  state_teeth(bytes ramet_block_copy K4)
  state_teeth(refcount ramet_block_retain K1)
  state_teeth(release ramet_block_release K1 K2)
  state_teeth(zone ramet_zone_find K6 K12)
  state_teeth(forget ramet_blocks_forget K2 K7 K9)
endif()
