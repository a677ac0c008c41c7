# Completion scripts and man pages, which the programs write themselves. client/CMakeLists.txt includes this file with
# NORMD_INSTALL. A program for another machine cannot run here, so there are none of them then.
if(CMAKE_CROSSCOMPILING)
  return()
endif()
set(shell_dir ${CMAKE_CURRENT_BINARY_DIR}/shell)
foreach(program normctl normload)
  add_custom_command(
    OUTPUT ${shell_dir}/${program}.stamp
    COMMAND ${CMAKE_COMMAND} -E make_directory ${shell_dir}/man1 ${shell_dir}/bash ${shell_dir}/zsh ${shell_dir}/fish
    COMMAND ${program} completion bash > ${shell_dir}/bash/${program}
    COMMAND ${program} completion zsh > ${shell_dir}/zsh/_${program}
    COMMAND ${program} completion fish > ${shell_dir}/fish/${program}.fish
    COMMAND ${program} man --directory ${shell_dir}/man1
    COMMAND ${CMAKE_COMMAND} -E touch ${shell_dir}/${program}.stamp
    DEPENDS ${program} VERBATIM)
  list(APPEND shell_stamps ${shell_dir}/${program}.stamp)
endforeach()
add_custom_target(normd_shell_files ALL DEPENDS ${shell_stamps})
install(DIRECTORY ${shell_dir}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT programs)
install(DIRECTORY ${shell_dir}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT programs)
install(DIRECTORY ${shell_dir}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT programs)
install(DIRECTORY ${shell_dir}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT programs)
