# Writes OUTPUT, a C++ file that defines `absl::string_view NAMESPACE::FUNCTION()`, as HEADER declares it, which returns
# the text of INPUT. The text is cut into pieces, because compilers bound the length of one string literal.
file(READ "${INPUT}" text)
string(LENGTH "${text}" length)
set(pieces "")
set(offset 0)
while(offset LESS length)
  string(SUBSTRING "${text}" ${offset} 8000 piece)
  string(APPEND pieces "    R\"normd(${piece})normd\"\n")
  math(EXPR offset "${offset} + 8000")
endwhile()
get_filename_component(name "${INPUT}" NAME)
file(WRITE "${OUTPUT}" "// Made from ${name} by proto/embed.cmake.\n"
  "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\n"
  "absl::string_view ${FUNCTION}() {\n  static constexpr char kText[] =\n${pieces}    \"\";\n"
  "  return {kText, sizeof(kText) - 1};\n}\n\n}  // namespace ${NAMESPACE}\n")
