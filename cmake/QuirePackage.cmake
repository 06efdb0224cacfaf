# The installed package: libquire-state and what it stands on. find_package(quire) gives quire::state.
# `cmake --install build/release --component state` installs this and nothing else.
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
