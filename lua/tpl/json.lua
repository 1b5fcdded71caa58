-- SPDX-License-Identifier: Apache-2.0
--- Read and write JSON byte-exactly: decode, encode, null, object, array, real (core/bind/l_json.c).
return require("tpl.core").json
