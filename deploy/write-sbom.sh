#!/usr/bin/env bash
# Prints the image's SBOM, as SPDX 2.3 in JSON: deploy/write-sbom.sh VERSION EPOCH CUDA LOADED COMPILED
# VERSION is normd's, EPOCH the time of the document, CUDA the version of the CUDA runtime that is linked in (or empty).
# LOADED and COMPILED are files of installed Debian packages, one a line: whose shared libraries are in the image, and
# whose headers were compiled in. The same input gives the same bytes.
set -euo pipefail
version=$1 epoch=$2 cuda=$3 loaded=$4 compiled=$5
# shellcheck disable=SC1091
distribution=$(. /etc/os-release && echo "$ID-$VERSION_ID")

# The licences that a package's copyright file declares, one a line, under Debian's names: of a machine-readable file
# (DEP 5) its License fields, of another the texts of /usr/share/common-licenses that it refers to.
declared_licenses() {
  local file=/usr/share/doc/$1/copyright
  if grep -qE '^Format(-Specification)?:' "$file"; then
    sed -nE 's/^License:[[:space:]]*([^[:space:]].*)$/\1/p' "$file"
  else
    { grep -oE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$file" || true; } | xargs -r -n 1 basename
  fi | sed -E 's/[[:space:],]+$//' | sort -u
}

# SPDX's name of a licence of Debian, or nothing.
spdx_license() {
  case ${1,,} in
    expat | mit) echo MIT ;;
    apache-2 | apache-2.0) echo Apache-2.0 ;;
    bsd-2-clause) echo BSD-2-Clause ;;
    bsd-3-clause) echo BSD-3-Clause ;;
    bsl-1 | bsl-1.0) echo BSL-1.0 ;;
    isc) echo ISC ;;
    zlib) echo Zlib ;;
    0bsd) echo 0BSD ;;
    postgresql) echo PostgreSQL ;;
    openldap-2.8) echo OLDAP-2.8 ;;
    gpl-1 | gpl-2 | gpl-3 | lgpl-2 | lgpl-2.1 | lgpl-3)
      local name=${1^^}
      if [[ $name != *.* ]]; then name+=.0; fi
      echo "$name-only"
      ;;
    gpl-1+ | gpl-2+ | gpl-3+ | lgpl-2+ | lgpl-2.1+ | lgpl-3+)
      local name=${1^^}
      name=${name%+}
      if [[ $name != *.* ]]; then name+=.0; fi
      echo "$name-or-later"
      ;;
  esac
}

# The licence expression of a package. What SPDX has no name for is a reference to the text in the image, which is
# appended to the array `texts`.
license_of() {
  local package=$1 expression="" name id
  local -A named=()
  while read -r name; do
    id=$(spdx_license "$name")
    if [[ -z $id ]]; then
      id=LicenseRef-$package-$(sed -E 's/\+/-or-later/g; s/[^A-Za-z0-9.]+/-/g; s/^-|-$//g' <<<"$name")
      id=${id//+/-}
      reference "$id" "$name: the text is in usr/share/doc/$package/copyright"
    fi
    if [[ -z ${named[$id]:-} ]]; then expression+="${expression:+ AND }$id"; fi
    named[$id]=1
  done < <(declared_licenses "$package")
  if [[ -z $expression ]]; then
    expression=LicenseRef-${package//+/-}
    reference "$expression" "The text is in usr/share/doc/$package/copyright"
  fi
  license=$expression
}
declare -A known=()
texts=()
reference() {
  local text=${2//\\/\\\\}
  [[ -z ${known[$1]:-} ]] || return 0
  known[$1]=1
  texts+=("$(printf '{"licenseId": "%s", "extractedText": "%s"}' "$1" "${text//\"/\\\"}")")
}

# Appends to `packages` and `relationships`: NAME VERSION SUPPLIER LICENCE PURL RELATIONSHIP
packages=() relationships=()
add() {
  local id=SPDXRef-${1//[^A-Za-z0-9.-]/-}
  packages+=("$(printf '{"SPDXID": "%s", "name": "%s", "versionInfo": "%s", "supplier": "Organization: %s",
      "downloadLocation": "NOASSERTION", "filesAnalyzed": false, "copyrightText": "NOASSERTION",
      "licenseConcluded": "NOASSERTION", "licenseDeclared": "%s",
      "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "%s"}]}' \
    "$id" "$1" "$2" "$3" "$4" "$5")")
  case $6 in
    describes) relationships+=("$(relation SPDXRef-DOCUMENT DESCRIBES "$id")") ;;
    contains) relationships+=("$(relation SPDXRef-normd CONTAINS "$id")") ;;
    compiled) relationships+=("$(relation SPDXRef-normd STATIC_LINK "$id")") ;;
  esac
}
relation() {
  printf '{"spdxElementId": "%s", "relationshipType": "%s", "relatedSpdxElement": "%s"}' "$@"
}
add_debian() { # LIST RELATIONSHIP
  local package full architecture purl
  while read -r package; do
    read -r full architecture < <(dpkg-query -W -f='${Version} ${Architecture}\n' "$package")
    license_of "$package"
    purl=pkg:deb/debian/${package//+/%2B}@${full//:/%3A}?arch=$architecture\&distro=$distribution
    add "$package" "$full" Debian "$license" "${purl//+/%2B}" "$2"
  done <"$1"
}

add normd "$version" normd NOASSERTION "pkg:generic/normd@$version" describes
add_debian "$loaded" contains
add_debian "$compiled" compiled
if [[ -n $cuda ]]; then
  reference LicenseRef-NVIDIA-CUDA-EULA "The end user licence agreement of the CUDA Toolkit"
  add cuda-cudart "$cuda" NVIDIA LicenseRef-NVIDIA-CUDA-EULA "pkg:generic/cuda-cudart@$cuda" compiled
fi

join() {
  printf '    %s,\n' "$@" | sed '$ s/,$//'
}
content=$(join "${packages[@]}")
cat <<JSON
{
  "spdxVersion": "SPDX-2.3",
  "dataLicense": "CC0-1.0",
  "SPDXID": "SPDXRef-DOCUMENT",
  "name": "normd-$version",
  "documentNamespace": "https://spdx.org/spdxdocs/normd-$version-$(sha256sum <<<"$content" | cut -c1-32)",
  "creationInfo": {
    "created": "$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)",
    "creators": ["Tool: deploy/write-sbom.sh"]
  },
  "packages": [
$content
  ],
  "relationships": [
$(join "${relationships[@]}")
  ],
  "hasExtractedLicensingInfos": [
$(join "${texts[@]}")
  ]
}
JSON
