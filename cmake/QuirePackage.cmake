# The installed package: libquire-state and what it stands on. find_package(quire) gives quire::state.
include(CMakePackageConfigHelpers)

foreach(module base state)
  file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${module}/*.h)
  list(FILTER headers EXCLUDE REGEX "_(testing|internal)\\.h$")
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quire/${module})
endforeach()

install(TARGETS quire-base quire-state EXPORT quire-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT quire-targets NAMESPACE quire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/quireConfig.cmake.in ${CMAKE_BINARY_DIR}/quireConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/quireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/quireConfig.cmake ${CMAKE_BINARY_DIR}/quireConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/quire)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
