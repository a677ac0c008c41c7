# Completion scripts and man pages, which the programs write themselves when they are installed. client/CMakeLists.txt
# includes this file with NORMD_INSTALL. A program for another machine cannot run here, so there are none of them then.
if(CMAKE_CROSSCOMPILING)
  return()
endif()
set(shell_dir ${CMAKE_CURRENT_BINARY_DIR}/shell)
install(CODE "file(MAKE_DIRECTORY ${shell_dir}/man1 ${shell_dir}/bash ${shell_dir}/zsh ${shell_dir}/fish)"
  COMPONENT programs)
foreach(program normctl normload)
  foreach(script bash/${program} zsh/_${program} fish/${program}.fish)
    get_filename_component(shell ${script} DIRECTORY)
    install(CODE "execute_process(COMMAND $<TARGET_FILE:${program}> completion ${shell}
      OUTPUT_FILE ${shell_dir}/${script} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT programs)
  endforeach()
  install(CODE "execute_process(COMMAND $<TARGET_FILE:${program}> man --directory ${shell_dir}/man1
    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT programs)
endforeach()
install(DIRECTORY ${shell_dir}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT programs)
install(DIRECTORY ${shell_dir}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT programs)
install(DIRECTORY ${shell_dir}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT programs)
install(DIRECTORY ${shell_dir}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT programs)
