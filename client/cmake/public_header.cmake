# cmake -D INPUT=... -D OUTPUT=... -P public_header.cmake: a header of client/cpp/ as users include it.
file(READ ${INPUT} text)
string(REPLACE "#include \"client/cpp/" "#include \"normd/" text "${text}")
file(WRITE ${OUTPUT} "${text}")
