"""The built-in types of PostgreSQL 15, with their OIDs."""

from __future__ import annotations

DEFINITIONS = """\
16 bool 1000 1 t b B t , 0 0 c p boolin boolean
17 bytea 1001 -1 f b U f , 0 0 i x byteain
18 char 1002 1 t b Z f , 0 0 c p charin "char"
19 name 1003 64 f b S f , 18 950 c p namein
20 int8 1016 8 t b N f , 0 0 d p int8in bigint
21 int2 1005 2 t b N f , 0 0 s p int2in smallint
22 int2vector 1006 -1 f b A f , 21 0 i p int2vectorin
23 int4 1007 4 t b N f , 0 0 i p int4in integer
24 regproc 1008 4 t b N f , 0 0 i p regprocin
25 text 1009 -1 f b S t , 0 100 i x textin
26 oid 1028 4 t b N t , 0 0 i p oidin
27 tid 1010 6 f b U f , 0 0 s p tidin
28 xid 1011 4 t b U f , 0 0 i p xidin
29 cid 1012 4 t b U f , 0 0 i p cidin
30 oidvector 1013 -1 f b A f , 26 0 i p oidvectorin
32 pg_ddl_command 0 8 t p P f , 0 0 d p pg_ddl_command_in
114 json 199 -1 f b U f , 0 0 i x json_in
142 xml 143 -1 f b U f , 0 0 i x xml_in
194 pg_node_tree 0 -1 f b Z f , 0 100 i x pg_node_tree_in
269 table_am_handler 0 4 t p P f , 0 0 i p table_am_handler_in
325 index_am_handler 0 4 t p P f , 0 0 i p index_am_handler_in
600 point 1017 16 f b G f , 701 0 d p point_in
601 lseg 1018 32 f b G f , 600 0 d p lseg_in
602 path 1019 -1 f b G f , 0 0 d x path_in
603 box 1020 32 f b G f ; 600 0 d p box_in
604 polygon 1027 -1 f b G f , 0 0 d x poly_in
628 line 629 24 f b G f , 701 0 d p line_in
650 cidr 651 -1 f b I f , 0 0 i m cidr_in
700 float4 1021 4 t b N f , 0 0 i p float4in real
701 float8 1022 8 t b N t , 0 0 d p float8in double_precision
705 unknown 0 -2 f p X f , 0 0 c p unknownin
718 circle 719 24 f b G f , 0 0 d p circle_in
774 macaddr8 775 8 f b U f , 0 0 i p macaddr8_in
790 money 791 8 t b N f , 0 0 d p cash_in
829 macaddr 1040 6 f b U f , 0 0 i p macaddr_in
869 inet 1041 -1 f b I t , 0 0 i m inet_in
1033 aclitem 1034 12 f b U f , 0 0 i p aclitemin
1042 bpchar 1014 -1 f b S f , 0 100 i x bpcharin character
1043 varchar 1015 -1 f b S f , 0 100 i x varcharin character_varying
1082 date 1182 4 t b D f , 0 0 i p date_in
1083 time 1183 8 t b D f , 0 0 d p time_in time_without_time_zone
1114 timestamp 1115 8 t b D f , 0 0 d p timestamp_in timestamp_without_time_zone
1184 timestamptz 1185 8 t b D t , 0 0 d p timestamptz_in timestamp_with_time_zone
1186 interval 1187 16 f b T t , 0 0 d p interval_in
1266 timetz 1270 12 f b D f , 0 0 d p timetz_in time_with_time_zone
1560 bit 1561 -1 f b V f , 0 0 i x bit_in
1562 varbit 1563 -1 f b V t , 0 0 i x varbit_in bit_varying
1700 numeric 1231 -1 f b N f , 0 0 i m numeric_in
1790 refcursor 2201 -1 f b U f , 0 0 i x textin
2202 regprocedure 2207 4 t b N f , 0 0 i p regprocedurein
2203 regoper 2208 4 t b N f , 0 0 i p regoperin
2204 regoperator 2209 4 t b N f , 0 0 i p regoperatorin
2205 regclass 2210 4 t b N f , 0 0 i p regclassin
2206 regtype 2211 4 t b N f , 0 0 i p regtypein
2249 record 2287 -1 f p P f , 0 0 d x record_in
2275 cstring 1263 -2 f p P f , 0 0 c p cstring_in
2276 any 0 4 t p P f , 0 0 i p any_in "any"
2277 anyarray 0 -1 f p P f , 0 0 d x anyarray_in
2278 void 0 4 t p P f , 0 0 i p void_in
2279 trigger 0 4 t p P f , 0 0 i p trigger_in
2280 language_handler 0 4 t p P f , 0 0 i p language_handler_in
2281 internal 0 8 t p P f , 0 0 d p internal_in
2283 anyelement 0 4 t p P f , 0 0 i p anyelement_in
2287 _record 0 -1 f p P f , 2249 0 d x array_in record[]
2776 anynonarray 0 4 t p P f , 0 0 i p anynonarray_in
2950 uuid 2951 16 f b U f , 0 0 c p uuid_in
2970 txid_snapshot 2949 -1 f b U f , 0 0 d x txid_snapshot_in
3115 fdw_handler 0 4 t p P f , 0 0 i p fdw_handler_in
3220 pg_lsn 3221 8 t b U f , 0 0 d p pg_lsn_in
3310 tsm_handler 0 4 t p P f , 0 0 i p tsm_handler_in
3361 pg_ndistinct 0 -1 f b Z f , 0 100 i x pg_ndistinct_in
3402 pg_dependencies 0 -1 f b Z f , 0 100 i x pg_dependencies_in
3500 anyenum 0 4 t p P f , 0 0 i p anyenum_in
3614 tsvector 3643 -1 f b U f , 0 0 i x tsvectorin
3615 tsquery 3645 -1 f b U f , 0 0 i p tsqueryin
3642 gtsvector 3644 -1 f b U f , 0 0 i p gtsvectorin
3734 regconfig 3735 4 t b N f , 0 0 i p regconfigin
3769 regdictionary 3770 4 t b N f , 0 0 i p regdictionaryin
3802 jsonb 3807 -1 f b U f , 0 0 i x jsonb_in
3831 anyrange 0 -1 f p P f , 0 0 d x anyrange_in
3838 event_trigger 0 4 t p P f , 0 0 i p event_trigger_in
3904 int4range 3905 -1 f r R f , 0 0 i x range_in
3906 numrange 3907 -1 f r R f , 0 0 i x range_in
3908 tsrange 3909 -1 f r R f , 0 0 d x range_in
3910 tstzrange 3911 -1 f r R f , 0 0 d x range_in
3912 daterange 3913 -1 f r R f , 0 0 i x range_in
3926 int8range 3927 -1 f r R f , 0 0 d x range_in
4072 jsonpath 4073 -1 f b U f , 0 0 i x jsonpath_in
4089 regnamespace 4090 4 t b N f , 0 0 i p regnamespacein
4096 regrole 4097 4 t b N f , 0 0 i p regrolein
4191 regcollation 4192 4 t b N f , 0 0 i p regcollationin
4451 int4multirange 6150 -1 f m R f , 0 0 i x multirange_in
4532 nummultirange 6151 -1 f m R f , 0 0 i x multirange_in
4533 tsmultirange 6152 -1 f m R f , 0 0 d x multirange_in
4534 tstzmultirange 6153 -1 f m R f , 0 0 d x multirange_in
4535 datemultirange 6155 -1 f m R f , 0 0 i x multirange_in
4536 int8multirange 6157 -1 f m R f , 0 0 d x multirange_in
4537 anymultirange 0 -1 f p P f , 0 0 d x anymultirange_in
4538 anycompatiblemultirange 0 -1 f p P f , 0 0 d x anycompatiblemultirange_in
4600 pg_brin_bloom_summary 0 -1 f b Z f , 0 100 i x brin_bloom_summary_in
4601 pg_brin_minmax_multi_summary 0 -1 f b Z f , 0 100 i x brin_minmax_multi_summary_in
5017 pg_mcv_list 0 -1 f b Z f , 0 100 i x pg_mcv_list_in
5038 pg_snapshot 5039 -1 f b U f , 0 0 d x pg_snapshot_in
5069 xid8 271 8 t b U f , 0 0 d p xid8in
5077 anycompatible 0 4 t p P f , 0 0 i p anycompatible_in
5078 anycompatiblearray 0 -1 f p P f , 0 0 d x anycompatiblearray_in
5079 anycompatiblenonarray 0 4 t p P f , 0 0 i p anycompatiblenonarray_in
5080 anycompatiblerange 0 -1 f p P f , 0 0 d x anycompatiblerange_in
"""
"""A type: OID, name, OID of its array type (0: none), length, whether it is passed by value, typtype, category, whether it is preferred,
delimiter, OID of the element type, OID of the collation, alignment, storage, input function, and its name in SQL with `_` for blanks
where that is another."""
