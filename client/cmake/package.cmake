# The package of normd_client: its public headers as <normd/NAME.h> and, with NORMD_INSTALL, the CMake package normd and
# the pkg-config module normd. client/CMakeLists.txt includes this file.
set(public_headers client.h cuda_region.h half.h local_server.h retry.h running_moments.h security.h session_watch.h
  shared_arena.h shared_memory.h status.h tensor.h)

# The build tree and the installed tree use the same files: copies that include each other as users include them.
set(public_dir ${CMAKE_CURRENT_BINARY_DIR}/include)
foreach(header ${public_headers})
  add_custom_command(
    OUTPUT ${public_dir}/normd/${header}
    COMMAND ${CMAKE_COMMAND} -D INPUT=${CMAKE_CURRENT_SOURCE_DIR}/cpp/${header} -D OUTPUT=${public_dir}/normd/${header}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/public_header.cmake
    DEPENDS cpp/${header} cmake/public_header.cmake VERBATIM)
endforeach()
list(TRANSFORM public_headers PREPEND ${public_dir}/normd/)
# A target of its own: as a part of normd_client, the copies would wait for the libraries that normd_client links.
add_custom_target(normd_public_headers DEPENDS ${public_headers})
add_dependencies(normd_client normd_public_headers)
target_sources(normd_client PUBLIC FILE_SET HEADERS BASE_DIRS ${public_dir} FILES ${public_headers})

if(NOT NORMD_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set_target_properties(normd_client PROPERTIES EXPORT_NAME client)
install(TARGETS normd_client EXPORT normdTargets ARCHIVE COMPONENT client FILE_SET HEADERS COMPONENT client)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/normd)
install(EXPORT normdTargets NAMESPACE normd:: DESTINATION ${package_dir} COMPONENT client)
configure_package_config_file(cmake/normdConfig.cmake.in normdConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(normdConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/normdConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/normdConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT client)

# The module finds its files relative to itself, because `cmake --install --prefix` chooses the folder afterwards.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pkgconfig_to_prefix /${pkgconfig_dir} /)
configure_file(cmake/normd.pc.in normd.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/normd.pc DESTINATION ${pkgconfig_dir} COMPONENT client)
