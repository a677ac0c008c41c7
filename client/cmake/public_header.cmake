# Copies a header of client/cpp/ with includes as users write them.
# Usage: cmake -D INPUT=... -D OUTPUT=... -P public_header.cmake
file(READ ${INPUT} text)
string(REPLACE "#include \"client/cpp/" "#include \"normd/" text "${text}")
file(WRITE ${OUTPUT} "${text}")
