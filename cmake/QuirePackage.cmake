# The installed package. find_package(quire) gives quire::state; `cmake --install build/release --component state`
# installs that and what it stands on. With `--component engine` beside it find_package(quire COMPONENTS engine) gives
# quire::engine and quire::text too: a whole engine to embed.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/quire)

foreach(module base state)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${module}/*.h)
  list(FILTER headers EXCLUDE REGEX "_(testing|internal)\\.h$")
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quire/${module} COMPONENT state)
endforeach()

install(TARGETS quire-base quire-state EXPORT quire-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT state)
install(EXPORT quire-targets NAMESPACE quire:: DESTINATION ${package_dir} COMPONENT state)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/quireConfig.cmake.in ${CMAKE_BINARY_DIR}/quireConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/quireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/quireConfig.cmake ${CMAKE_BINARY_DIR}/quireConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT state)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT state)

if(TARGET quire-engine)
  set(engine_modules gguf jinja text backend model engine)
  foreach(module ${engine_modules})
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/${module}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quire/${module}
            COMPONENT engine FILES_MATCHING PATTERN "*.h" PATTERN "*_testing.h" EXCLUDE PATTERN "*_internal.h" EXCLUDE)
  endforeach()
  list(TRANSFORM engine_modules PREPEND quire- OUTPUT_VARIABLE engine_targets)
  install(TARGETS ${engine_targets} EXPORT quire-engine-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT engine)
  install(EXPORT quire-engine-targets NAMESPACE quire:: DESTINATION ${package_dir} COMPONENT engine)
endif()
