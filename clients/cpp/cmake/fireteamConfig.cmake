# Package of an install tree: the target fireteam::client, with the C library, its header, and the C++ headers.

include(CMakeFindDependencyMacro)
find_dependency(Threads)

get_filename_component(FIRETEAM_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
file(GLOB FIRETEAM_LIBRARY "${FIRETEAM_PREFIX}/lib/libfireteam_c.*" "${FIRETEAM_PREFIX}/lib/fireteam_c.*")
if(NOT FIRETEAM_LIBRARY)
  set(fireteam_FOUND FALSE)
  set(fireteam_NOT_FOUND_MESSAGE "${FIRETEAM_PREFIX}/lib has no fireteam_c library")
  return()
endif()
list(GET FIRETEAM_LIBRARY 0 FIRETEAM_LIBRARY)

if(NOT TARGET fireteam::client)
  add_library(fireteam::client INTERFACE IMPORTED)
  target_include_directories(fireteam::client INTERFACE "${FIRETEAM_PREFIX}/include")
  target_compile_features(fireteam::client INTERFACE cxx_std_17)
  target_link_libraries(fireteam::client INTERFACE "${FIRETEAM_LIBRARY}" Threads::Threads ${CMAKE_DL_LIBS})
  # Libraries of the system, as `rustc --print native-static-libs` lists them.
  if(WIN32)
    target_link_libraries(fireteam::client INTERFACE ws2_32 userenv ntdll bcrypt)
  elseif(APPLE)
    target_link_libraries(fireteam::client INTERFACE "-framework Security" "-framework CoreFoundation")
  else()
    target_link_libraries(fireteam::client INTERFACE m rt util gcc_s)
  endif()
endif()
