# Writes OUTPUT, a C++ file that defines `absl::string_view normd::client::FUNCTION()`, which returns the text of INPUT.
# The text is cut into pieces, because compilers bound the length of one string literal.
file(READ "${INPUT}" text)
string(LENGTH "${text}" length)
set(pieces "")
set(offset 0)
while(offset LESS length)
  string(SUBSTRING "${text}" ${offset} 8000 piece)
  string(APPEND pieces "    R\"normd(${piece})normd\"\n")
  math(EXPR offset "${offset} + 8000")
endwhile()
file(WRITE "${OUTPUT}" "// Made from client/normctl/data by embed.cmake.\n"
  "#include \"client/normctl/demo_data.h\"\n\nnamespace normd::client {\n\n"
  "absl::string_view ${FUNCTION}() {\n  static constexpr char kText[] =\n${pieces}    \"\";\n"
  "  return {kText, sizeof(kText) - 1};\n}\n\n}  // namespace normd::client\n")
