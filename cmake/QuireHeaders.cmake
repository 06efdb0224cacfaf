cmake_policy(VERSION 3.25)  # install scripts set no policy

# quire_install_headers(<source folder> <destination> <header>...): installs these headers of src/ ("engine/engine.h") and
# those that they include. It runs at install time, so new includes are always found.
function(quire_install_headers source destination)
  set(pending ${ARGN})
  set(all "")
  while(pending)
    list(POP_FRONT pending header)
    if(header IN_LIST all)
      continue()
    endif()
    list(APPEND all ${header})
    file(STRINGS ${source}/${header} includes REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]quire/")
    foreach(line ${includes})
      string(REGEX REPLACE ".*[\"<]quire/([^\">]+)[\">].*" "\\1" included "${line}")
      list(APPEND pending ${included})
    endforeach()
  endwhile()
  foreach(header ${all})
    get_filename_component(folder ${header} DIRECTORY)
    file(INSTALL ${source}/${header} DESTINATION ${destination}/${folder})
  endforeach()
endfunction()
