# The installed package. find_package(quire) gives quire::state; `cmake --install build/release --component state`
# installs it and its dependencies. If `--component engine` is installed too, find_package(quire COMPONENTS engine) also
# gives quire::engine and quire::text: a whole engine to embed.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/quire)

# Installs the headers for users, which are listed here, and the headers that they include. All others are private. A test
# compares the result with tests/installed_headers.txt.
function(quire_public_headers component)
  string(JOIN " " headers ${ARGN})
  install(CODE "include(\"${CMAKE_SOURCE_DIR}/cmake/QuireHeaders.cmake\")
quire_install_headers(\"${CMAKE_SOURCE_DIR}/src\" \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/quire\" ${headers})"
          COMPONENT ${component})
endfunction()

# The state library: each of its types can be used alone.
file(GLOB state_headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/state/*.h)
list(FILTER state_headers EXCLUDE REGEX "(_testing|_internal|reference_[a-z]+)\\.h$")
quire_public_headers(state ${state_headers})

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
  # The model's file, the engine (on the caller's thread or on its own), and the conversion between text and tokens.
  quire_public_headers(engine gguf/gguf.h model/model.h
                       engine/hosted_model.h engine/engine.h engine/request.h engine/service.h
                       text/tokenizer.h text/stream_decoder.h text/chat_prompt.h)
  set(engine_modules tiers gguf jinja text backend model engine)
  list(TRANSFORM engine_modules PREPEND quire- OUTPUT_VARIABLE engine_targets)
  install(TARGETS ${engine_targets} EXPORT quire-engine-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT engine)
  install(EXPORT quire-engine-targets NAMESPACE quire:: DESTINATION ${package_dir} COMPONENT engine)
endif()
