# libramet, shared and static, out of all rooms below the command; and what `cmake --install` puts where.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(library_rooms base numerics model text state kernels sample forward store engine)
list(TRANSFORM library_rooms REPLACE "(.+)" "$<TARGET_OBJECTS:ramet_\\1>" OUTPUT_VARIABLE library_objects)
set(library_needs crypto xxhash pcre2-8 m) # as -l names; ramet.pc lists their packages

add_library(ramet_shared SHARED ${library_objects})
add_library(ramet_static STATIC ${library_objects})
foreach(library ramet_shared ramet_static)
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME ramet)
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
set_target_properties(ramet_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME ramet)
target_link_libraries(ramet_shared PRIVATE Threads::Threads PkgConfig::CRYPTO PkgConfig::XXHASH PkgConfig::PCRE2 m)
target_link_libraries(ramet_static INTERFACE Threads::Threads ${library_needs})

# The shared library shows the functions of ramet.h and nothing else: their names are read out of the header.
file(READ include/ramet.h header)
string(REGEX MATCHALL "\n[a-z][^(;\n]*[ *]ramet_[a-z0-9_]+\\(" public_functions "${header}")
list(TRANSFORM public_functions REPLACE ".*[ *](ramet_[a-z0-9_]+)\\($" "\\1")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS include/ramet.h)
if(APPLE)
  list(TRANSFORM public_functions PREPEND "_")
  list(JOIN public_functions "\n" export_list)
  set(export_option "-Wl,-exported_symbols_list,")
else()
  list(JOIN public_functions "; " export_list)
  set(export_list "{ global: ${export_list}; local: *; };")
  set(export_option "-Wl,--version-script=")
endif()
set(export_file ${PROJECT_BINARY_DIR}/libramet.exports)
file(CONFIGURE OUTPUT ${export_file} CONTENT "${export_list}\n" @ONLY)
target_link_options(ramet_shared PRIVATE "${export_option}${export_file}")
set_target_properties(ramet_shared PROPERTIES LINK_DEPENDS ${export_file})

install(TARGETS ramet_shared ramet_static EXPORT ramet_targets)
install(FILES include/ramet.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY share/models DESTINATION ${CMAKE_INSTALL_DATADIR}/ramet)
if(TARGET ramet)
  install(TARGETS ramet)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ramet)
install(EXPORT ramet_targets NAMESPACE ramet:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ramet-config.cmake.in ramet-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ramet-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ramet-config.cmake ${PROJECT_BINARY_DIR}/ramet-config-version.cmake
        DESTINATION ${package_dir})

# ramet.pc finds its prefix from where it lies, so the tree may be moved or installed with --prefix.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pkgconfig_to_prefix /prefix/${pkgconfig_dir} /prefix)
string(REGEX REPLACE "/$" "" pkgconfig_to_prefix ${pkgconfig_to_prefix})
configure_file(cmake/ramet.pc.in ramet.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ramet.pc DESTINATION ${pkgconfig_dir})
