"""The functions that read and write values of the built-in types, with their OIDs in PostgreSQL 15."""

from __future__ import annotations

DEFINITIONS = """\
31 byteaout 2275 17 it; 33 charout 2275 18 it; 34 namein 19 2275 it; 35 nameout 2275 19 it; 38 int2in 21 2275 it; 39 int2out 2275 21 it
40 int2vectorin 22 2275 it; 41 int2vectorout 2275 22 it; 42 int4in 23 2275 it; 43 int4out 2275 23 it; 44 regprocin 24 2275 st
45 regprocout 2275 24 st; 46 textin 25 2275 it; 47 textout 2275 25 it; 48 tidin 27 2275 it; 49 tidout 2275 27 it; 50 xidin 28 2275 it
51 xidout 2275 28 it; 52 cidin 29 2275 it; 53 cidout 2275 29 it; 54 oidvectorin 30 2275 it; 55 oidvectorout 2275 30 it
86 pg_ddl_command_in 32 2275 it; 87 pg_ddl_command_out 2275 32 it; 88 pg_ddl_command_recv 32 2281 it; 90 pg_ddl_command_send 17 32 it
109 unknownin 705 2275 it; 110 unknownout 2275 705 it; 117 point_in 600 2275 it; 118 point_out 2275 600 it; 119 lseg_in 601 2275 it
120 lseg_out 2275 601 it; 121 path_in 602 2275 it; 122 path_out 2275 602 it; 123 box_in 603 2275 it; 124 box_out 2275 603 it
195 pg_node_tree_in 194 2275 it; 196 pg_node_tree_out 2275 194 it; 197 pg_node_tree_recv 194 2281 st; 198 pg_node_tree_send 17 194 st
200 float4in 700 2275 it; 201 float4out 2275 700 it; 214 float8in 701 2275 it; 215 float8out 2275 701 it
267 table_am_handler_in 269 2275 if; 268 table_am_handler_out 2275 269 it; 321 json_in 114 2275 it; 322 json_out 2275 114 it
323 json_recv 114 2281 it; 324 json_send 17 114 it; 326 index_am_handler_in 325 2275 if; 327 index_am_handler_out 2275 325 it
347 poly_in 604 2275 it; 348 poly_out 2275 604 it; 436 macaddr_in 829 2275 it; 437 macaddr_out 2275 829 it; 460 int8in 20 2275 it
461 int8out 2275 20 it; 750 array_in 2277 2275,26,23 st; 751 array_out 2275 2277 st; 886 cash_in 790 2275 st; 887 cash_out 2275 790 st
910 inet_in 869 2275 it; 911 inet_out 2275 869 it; 1031 aclitemin 1033 2275 st; 1032 aclitemout 2275 1033 st
1044 bpcharin 1042 2275,26,23 it; 1045 bpcharout 2275 1042 it; 1046 varcharin 1043 2275,26,23 it; 1047 varcharout 2275 1043 it
1084 date_in 1082 2275 st; 1085 date_out 2275 1082 st; 1143 time_in 1083 2275,26,23 st; 1144 time_out 2275 1083 it
1150 timestamptz_in 1184 2275,26,23 st; 1151 timestamptz_out 2275 1184 st; 1160 interval_in 1186 2275,26,23 st
1161 interval_out 2275 1186 st; 1242 boolin 16 2275 it; 1243 boolout 2275 16 it; 1244 byteain 17 2275 it; 1245 charin 18 2275 it
1267 cidr_in 650 2275 it; 1312 timestamp_in 1114 2275,26,23 st; 1313 timestamp_out 2275 1114 st; 1350 timetz_in 1266 2275,26,23 st
1351 timetz_out 2275 1266 it; 1427 cidr_out 2275 650 it; 1450 circle_in 718 2275 it; 1451 circle_out 2275 718 it
1490 line_in 628 2275 it; 1491 line_out 2275 628 it; 1564 bit_in 1560 2275,26,23 it; 1565 bit_out 2275 1560 it
1579 varbit_in 1562 2275,26,23 it; 1580 varbit_out 2275 1562 it; 1701 numeric_in 1700 2275,26,23 it; 1702 numeric_out 2275 1700 it
1798 oidin 26 2275 it; 1799 oidout 2275 26 it; 2212 regprocedurein 2202 2275 st; 2213 regprocedureout 2275 2202 st
2214 regoperin 2203 2275 st; 2215 regoperout 2275 2203 st; 2216 regoperatorin 2204 2275 st; 2217 regoperatorout 2275 2204 st
2218 regclassin 2205 2275 st; 2219 regclassout 2275 2205 st; 2220 regtypein 2206 2275 st; 2221 regtypeout 2275 2206 st
2290 record_in 2249 2275,26,23 st; 2291 record_out 2275 2249 st; 2292 cstring_in 2275 2275 it; 2293 cstring_out 2275 2275 it
2294 any_in 2276 2275 it; 2295 any_out 2275 2276 it; 2296 anyarray_in 2277 2275 it; 2297 anyarray_out 2275 2277 st
2298 void_in 2278 2275 it; 2299 void_out 2275 2278 it; 2300 trigger_in 2279 2275 if; 2301 trigger_out 2275 2279 it
2302 language_handler_in 2280 2275 if; 2303 language_handler_out 2275 2280 it; 2304 internal_in 2281 2275 if
2305 internal_out 2275 2281 it; 2312 anyelement_in 2283 2275 it; 2313 anyelement_out 2275 2283 it; 2400 array_recv 2277 2281,26,23 st
2401 array_send 17 2277 st; 2402 record_recv 2249 2281,26,23 st; 2403 record_send 17 2249 st; 2404 int2recv 21 2281 it
2405 int2send 17 21 it; 2406 int4recv 23 2281 it; 2407 int4send 17 23 it; 2408 int8recv 20 2281 it; 2409 int8send 17 20 it
2410 int2vectorrecv 22 2281 it; 2411 int2vectorsend 17 22 it; 2412 bytearecv 17 2281 it; 2413 byteasend 17 17 it
2414 textrecv 25 2281 st; 2415 textsend 17 25 st; 2416 unknownrecv 705 2281 it; 2417 unknownsend 17 705 it; 2418 oidrecv 26 2281 it
2419 oidsend 17 26 it; 2420 oidvectorrecv 30 2281 it; 2421 oidvectorsend 17 30 it; 2422 namerecv 19 2281 st; 2423 namesend 17 19 st
2424 float4recv 700 2281 it; 2425 float4send 17 700 it; 2426 float8recv 701 2281 it; 2427 float8send 17 701 it
2428 point_recv 600 2281 it; 2429 point_send 17 600 it; 2430 bpcharrecv 1042 2281,26,23 st; 2431 bpcharsend 17 1042 st
2432 varcharrecv 1043 2281,26,23 st; 2433 varcharsend 17 1043 st; 2434 charrecv 18 2281 it; 2435 charsend 17 18 it
2436 boolrecv 16 2281 it; 2437 boolsend 17 16 it; 2438 tidrecv 27 2281 it; 2439 tidsend 17 27 it; 2440 xidrecv 28 2281 it
2441 xidsend 17 28 it; 2442 cidrecv 29 2281 it; 2443 cidsend 17 29 it; 2444 regprocrecv 24 2281 it; 2445 regprocsend 17 24 it
2446 regprocedurerecv 2202 2281 it; 2447 regproceduresend 17 2202 it; 2448 regoperrecv 2203 2281 it; 2449 regopersend 17 2203 it
2450 regoperatorrecv 2204 2281 it; 2451 regoperatorsend 17 2204 it; 2452 regclassrecv 2205 2281 it; 2453 regclasssend 17 2205 it
2454 regtyperecv 2206 2281 it; 2455 regtypesend 17 2206 it; 2456 bit_recv 1560 2281,26,23 it; 2457 bit_send 17 1560 it
2458 varbit_recv 1562 2281,26,23 it; 2459 varbit_send 17 1562 it; 2460 numeric_recv 1700 2281,26,23 it; 2461 numeric_send 17 1700 it
2468 date_recv 1082 2281 it; 2469 date_send 17 1082 it; 2470 time_recv 1083 2281,26,23 it; 2471 time_send 17 1083 it
2472 timetz_recv 1266 2281,26,23 it; 2473 timetz_send 17 1266 it; 2474 timestamp_recv 1114 2281,26,23 it; 2475 timestamp_send 17 1114 it
2476 timestamptz_recv 1184 2281,26,23 it; 2477 timestamptz_send 17 1184 it; 2478 interval_recv 1186 2281,26,23 it
2479 interval_send 17 1186 it; 2480 lseg_recv 601 2281 it; 2481 lseg_send 17 601 it; 2482 path_recv 602 2281 it
2483 path_send 17 602 it; 2484 box_recv 603 2281 it; 2485 box_send 17 603 it; 2486 poly_recv 604 2281 it; 2487 poly_send 17 604 it
2488 line_recv 628 2281 it; 2489 line_send 17 628 it; 2490 circle_recv 718 2281 it; 2491 circle_send 17 718 it
2492 cash_recv 790 2281 it; 2493 cash_send 17 790 it; 2494 macaddr_recv 829 2281 it; 2495 macaddr_send 17 829 it
2496 inet_recv 869 2281 it; 2497 inet_send 17 869 it; 2498 cidr_recv 650 2281 it; 2499 cidr_send 17 650 it
2500 cstring_recv 2275 2281 st; 2501 cstring_send 17 2275 st; 2502 anyarray_recv 2277 2281 st; 2503 anyarray_send 17 2277 st
2777 anynonarray_in 2776 2275 it; 2778 anynonarray_out 2275 2776 it; 2893 xml_in 142 2275 st; 2894 xml_out 2275 142 it
2898 xml_recv 142 2281 st; 2899 xml_send 17 142 st; 2939 txid_snapshot_in 2970 2275 it; 2940 txid_snapshot_out 2275 2970 it
2941 txid_snapshot_recv 2970 2281 it; 2942 txid_snapshot_send 17 2970 it; 2952 uuid_in 2950 2275 it; 2953 uuid_out 2275 2950 it
2961 uuid_recv 2950 2281 it; 2962 uuid_send 17 2950 it; 3116 fdw_handler_in 3115 2275 if; 3117 fdw_handler_out 2275 3115 it
3120 void_recv 2278 2281 it; 3121 void_send 17 2278 it; 3229 pg_lsn_in 3220 2275 it; 3230 pg_lsn_out 2275 3220 it
3238 pg_lsn_recv 3220 2281 it; 3239 pg_lsn_send 17 3220 it; 3311 tsm_handler_in 3310 2275 if; 3312 tsm_handler_out 2275 3310 it
3355 pg_ndistinct_in 3361 2275 it; 3356 pg_ndistinct_out 2275 3361 it; 3357 pg_ndistinct_recv 3361 2281 st
3358 pg_ndistinct_send 17 3361 st; 3404 pg_dependencies_in 3402 2275 it; 3405 pg_dependencies_out 2275 3402 it
3406 pg_dependencies_recv 3402 2281 st; 3407 pg_dependencies_send 17 3402 st; 3446 macaddr8_recv 774 2281 it
3447 macaddr8_send 17 774 it; 3504 anyenum_in 3500 2275 it; 3505 anyenum_out 2275 3500 st; 3594 event_trigger_in 3838 2275 if
3595 event_trigger_out 2275 3838 it; 3610 tsvectorin 3614 2275 it; 3611 tsvectorout 2275 3614 it; 3612 tsqueryin 3615 2275 it
3613 tsqueryout 2275 3615 it; 3638 tsvectorsend 17 3614 it; 3639 tsvectorrecv 3614 2281 it; 3640 tsquerysend 17 3615 it
3641 tsqueryrecv 3615 2281 it; 3646 gtsvectorin 3642 2275 it; 3647 gtsvectorout 2275 3642 it; 3736 regconfigin 3734 2275 st
3737 regconfigout 2275 3734 st; 3738 regconfigrecv 3734 2281 it; 3739 regconfigsend 17 3734 it; 3771 regdictionaryin 3769 2275 st
3772 regdictionaryout 2275 3769 st; 3773 regdictionaryrecv 3769 2281 it; 3774 regdictionarysend 17 3769 it; 3803 jsonb_send 17 3802 it
3804 jsonb_out 2275 3802 it; 3805 jsonb_recv 3802 2281 it; 3806 jsonb_in 3802 2275 it; 3832 anyrange_in 3831 2275,26,23 st
3833 anyrange_out 2275 3831 st; 3834 range_in 3831 2275,26,23 st; 3835 range_out 2275 3831 st; 3836 range_recv 3831 2281,26,23 st
3837 range_send 17 3831 st; 4001 jsonpath_in 4072 2275 it; 4002 jsonpath_recv 4072 2281 it; 4003 jsonpath_out 2275 4072 it
4004 jsonpath_send 17 4072 it; 4084 regnamespacein 4089 2275 st; 4085 regnamespaceout 2275 4089 st; 4087 regnamespacerecv 4089 2281 it
4088 regnamespacesend 17 4089 it; 4092 regroleout 2275 4096 st; 4094 regrolerecv 4096 2281 it; 4095 regrolesend 17 4096 it
4098 regrolein 4096 2275 st; 4110 macaddr8_in 774 2275 it; 4111 macaddr8_out 2275 774 it; 4193 regcollationin 4191 2275 st
4194 regcollationout 2275 4191 st; 4196 regcollationrecv 4191 2281 it; 4197 regcollationsend 17 4191 it
4226 anycompatiblemultirange_in 4538 2275,26,23 st; 4227 anycompatiblemultirange_out 2275 4538 st
4229 anymultirange_in 4537 2275,26,23 st; 4230 anymultirange_out 2275 4537 st; 4231 multirange_in 4537 2275,26,23 st
4232 multirange_out 2275 4537 st; 4233 multirange_recv 4537 2281,26,23 st; 4234 multirange_send 17 4537 st
4596 brin_bloom_summary_in 4600 2275 it; 4597 brin_bloom_summary_out 2275 4600 it; 4598 brin_bloom_summary_recv 4600 2281 st
4599 brin_bloom_summary_send 17 4600 st; 4638 brin_minmax_multi_summary_in 4601 2275 it; 4639 brin_minmax_multi_summary_out 2275 4601 it
4640 brin_minmax_multi_summary_recv 4601 2281 st; 4641 brin_minmax_multi_summary_send 17 4601 st; 5018 pg_mcv_list_in 5017 2275 it
5019 pg_mcv_list_out 2275 5017 it; 5020 pg_mcv_list_recv 5017 2281 st; 5021 pg_mcv_list_send 17 5017 st
5055 pg_snapshot_in 5038 2275 it; 5056 pg_snapshot_out 2275 5038 it; 5057 pg_snapshot_recv 5038 2281 it
5058 pg_snapshot_send 17 5038 it; 5070 xid8in 5069 2275 it; 5081 xid8out 2275 5069 it; 5082 xid8recv 5069 2281 it
5083 xid8send 17 5069 it; 5086 anycompatible_in 5077 2275 it; 5087 anycompatible_out 2275 5077 it
5088 anycompatiblearray_in 5078 2275 it; 5089 anycompatiblearray_out 2275 5078 st; 5090 anycompatiblearray_recv 5078 2281 st
5091 anycompatiblearray_send 17 5078 st; 5092 anycompatiblenonarray_in 5079 2275 it; 5093 anycompatiblenonarray_out 2275 5079 it
5094 anycompatiblerange_in 5080 2275,26,23 st; 5095 anycompatiblerange_out 2275 5080 st
"""
"""Separated by `; ` or a line's end. A function: OID, name, OID of the result's type, OIDs of the arguments' types, and two letters: its
volatility, and `t` where a NULL argument makes the result NULL."""
