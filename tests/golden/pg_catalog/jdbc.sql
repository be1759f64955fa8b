-- Catalog queries of the shape that PostgreSQL's JDBC driver sends for DatabaseMetaData; written for this test.
-- name: schemas
SELECT nspname AS "TABLE_SCHEM", current_database() AS "TABLE_CATALOG" FROM pg_catalog.pg_namespace
WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1])
  AND (nspname !~ '^pg_toast_temp_' OR nspname = replace((pg_catalog.current_schemas(true))[1], 'pg_temp_', 'pg_toast_temp_'))
ORDER BY "TABLE_SCHEM"
-- name: tables
SELECT current_database() AS "TABLE_CAT", n.nspname AS "TABLE_SCHEM", c.relname AS "TABLE_NAME",
  CASE n.nspname ~ '^pg_' OR n.nspname = 'information_schema'
    WHEN true THEN CASE WHEN n.nspname = 'pg_catalog' OR n.nspname = 'information_schema'
      THEN CASE c.relkind WHEN 'r' THEN 'SYSTEM TABLE' WHEN 'v' THEN 'SYSTEM VIEW' WHEN 'i' THEN 'SYSTEM INDEX' ELSE NULL END
      WHEN n.nspname = 'pg_toast' THEN CASE c.relkind WHEN 'r' THEN 'SYSTEM TOAST TABLE' WHEN 'i' THEN 'SYSTEM TOAST INDEX' ELSE NULL END
      ELSE CASE c.relkind WHEN 'r' THEN 'TEMPORARY TABLE' WHEN 'p' THEN 'TEMPORARY TABLE' ELSE NULL END END
    WHEN false THEN CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'i' THEN 'INDEX' WHEN 'v' THEN 'VIEW'
      WHEN 'c' THEN 'TYPE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END
    ELSE NULL END AS "TABLE_TYPE",
  d.description AS "REMARKS", '' AS "TYPE_CAT", '' AS "TYPE_SCHEM", '' AS "TYPE_NAME"
FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c
  LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass)
WHERE c.relnamespace = n.oid AND n.nspname LIKE 'shop'
  AND (false OR (c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema')
             OR (c.relkind = 'v' AND n.nspname <> 'pg_catalog' AND n.nspname <> 'information_schema'))
ORDER BY "TABLE_TYPE", "TABLE_SCHEM", "TABLE_NAME"
-- name: columns
SELECT * FROM (SELECT current_database() AS current_database, n.nspname, c.relname, a.attname, a.atttypid,
    a.attnotnull OR (t.typtype = 'd' AND t.typnotnull) AS attnotnull, a.atttypmod, a.attlen, t.typtypmod,
    row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum) AS attnum, nullif(a.attidentity, '') AS attidentity,
    nullif(a.attgenerated, '') AS attgenerated, pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS adsrc, dsc.description,
    t.typbasetype, t.typtype
  FROM pg_catalog.pg_namespace n
    JOIN pg_catalog.pg_class c ON (c.relnamespace = n.oid)
    JOIN pg_catalog.pg_attribute a ON (a.attrelid = c.oid)
    JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid)
    LEFT JOIN pg_catalog.pg_attrdef def ON (a.attrelid = def.adrelid AND a.attnum = def.adnum)
    LEFT JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
    LEFT JOIN pg_catalog.pg_class dc ON (dc.oid = dsc.classoid AND dc.relname = 'pg_class')
    LEFT JOIN pg_catalog.pg_namespace dn ON (dc.relnamespace = dn.oid AND dn.nspname = 'pg_catalog')
  WHERE c.relkind IN ('r', 'p', 'v', 'f', 'm') AND a.attnum > 0 AND NOT a.attisdropped AND n.nspname LIKE 'shop') c
WHERE true ORDER BY nspname, c.relname, attnum
-- name: primary keys
SELECT current_database() AS "TABLE_CAT", result."TABLE_SCHEM", result."TABLE_NAME", result."COLUMN_NAME", result."KEY_SEQ", result."PK_NAME"
FROM (SELECT n.nspname AS "TABLE_SCHEM", ct.relname AS "TABLE_NAME", a.attname AS "COLUMN_NAME",
    (information_schema._pg_expandarray(i.indkey)).n AS "KEY_SEQ", ci.relname AS "PK_NAME",
    information_schema._pg_expandarray(i.indkey) AS keys, a.attnum AS a_attnum
  FROM pg_catalog.pg_class ct
    JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid)
    JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)
    JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid)
    JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
  WHERE true AND n.nspname = 'shop' AND ct.relname = 'orders' AND i.indisprimary) result
WHERE result.a_attnum = (result.keys).x ORDER BY result."TABLE_NAME", result."PK_NAME", result."KEY_SEQ"
-- name: indexes
SELECT tmp.table_schem, tmp.table_name, tmp.non_unique, tmp.index_name, tmp.type, tmp.ordinal_position,
  trim(both '"' from pg_catalog.pg_get_indexdef(tmp.ci_oid, tmp.ordinal_position, false)) AS column_name,
  CASE tmp.am_name WHEN 'btree' THEN CASE tmp.i_indoption[tmp.ordinal_position - 1] & 1::smallint WHEN 1 THEN 'D' ELSE 'A' END ELSE NULL END
    AS asc_or_desc
FROM (SELECT n.nspname AS table_schem, ct.relname AS table_name, NOT i.indisunique AS non_unique, ci.relname AS index_name,
    CASE i.indisclustered WHEN true THEN 1 ELSE CASE am.amname WHEN 'hash' THEN 2 ELSE 3 END END AS type,
    (information_schema._pg_expandarray(i.indkey)).n AS ordinal_position, ci.oid AS ci_oid, i.indoption AS i_indoption, am.amname AS am_name
  FROM pg_catalog.pg_class ct
    JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid)
    JOIN pg_catalog.pg_index i ON (ct.oid = i.indrelid)
    JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid)
    JOIN pg_catalog.pg_am am ON (ci.relam = am.oid)
  WHERE n.nspname = 'shop') AS tmp
ORDER BY non_unique, type, index_name, ordinal_position
-- name: foreign keys
SELECT NULL::text AS "PKTABLE_CAT", pkn.nspname AS "PKTABLE_SCHEM", pkc.relname AS "PKTABLE_NAME", pka.attname AS "PKCOLUMN_NAME",
  fkn.nspname AS "FKTABLE_SCHEM", fkc.relname AS "FKTABLE_NAME", pos.n AS "KEY_SEQ", con.conname AS "FK_NAME",
  CASE WHEN con.condeferrable AND con.condeferred THEN 5 WHEN con.condeferrable THEN 6 ELSE 7 END AS "DEFERRABILITY"
FROM pg_catalog.pg_namespace pkn, pg_catalog.pg_class pkc, pg_catalog.pg_attribute pka, pg_catalog.pg_namespace fkn,
  pg_catalog.pg_class fkc, pg_catalog.pg_constraint con, pg_catalog.generate_series(1, 32) pos(n), pg_catalog.pg_class pkic
WHERE pkn.oid = pkc.relnamespace AND pkc.oid = pka.attrelid AND pka.attnum = con.confkey[pos.n] AND con.confrelid = pkc.oid
  AND fkn.oid = fkc.relnamespace AND con.conrelid = fkc.oid AND con.contype = 'f' AND con.conindid = pkic.oid AND fkn.nspname = 'shop'
ORDER BY fkn.nspname, fkc.relname, con.conname, pos.n
-- name: type by oid
SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 1184
-- name: type by name
SELECT pg_type.oid, typname FROM pg_catalog.pg_type
  LEFT JOIN (SELECT ns.oid AS nspoid, ns.nspname, r.r FROM pg_namespace AS ns
    JOIN (SELECT s.r, (current_schemas(false))[s.r] AS nspname FROM generate_series(1, array_upper(current_schemas(false), 1)) AS s(r)) AS r
    USING (nspname)) AS sp ON sp.nspoid = typnamespace
WHERE typname = '_int4' ORDER BY sp.r, pg_type.oid DESC LIMIT 1
-- name: is array
SELECT typinput = 'pg_catalog.array_in'::regproc AS is_array, typtype, typname, pg_type.oid FROM pg_catalog.pg_type
WHERE typname IN ('int4', '_text', 'numeric') ORDER BY pg_type.oid DESC
-- name: array element
SELECT e.oid, n.nspname = ANY(current_schemas(true)), n.nspname, e.typname
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_type e ON t.typelem = e.oid JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid
WHERE t.oid = 1231
-- name: table privileges
SELECT n.nspname, c.relname, r.rolname, c.relacl FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c, pg_catalog.pg_roles r
WHERE c.relnamespace = n.oid AND c.relowner = r.oid AND c.relkind IN ('r', 'p') AND n.nspname = 'shop' AND true
ORDER BY nspname, relname
-- name: functions
SELECT current_database() AS "FUNCTION_CAT", n.nspname AS "FUNCTION_SCHEM", p.proname AS "FUNCTION_NAME", d.description AS "REMARKS",
  p.proname || '_' || p.oid AS "SPECIFIC_NAME"
FROM pg_catalog.pg_proc p INNER JOIN pg_catalog.pg_namespace n ON p.pronamespace = n.oid
  LEFT JOIN pg_catalog.pg_description d ON p.oid = d.objoid
WHERE true AND pg_function_is_visible(p.oid) AND n.nspname LIKE 'shop' ORDER BY 2, 3
-- name: max index keys
SELECT setting FROM pg_catalog.pg_settings WHERE name = 'max_index_keys'
-- name: name length
SELECT t.typlen FROM pg_catalog.pg_type t, pg_catalog.pg_namespace n WHERE t.typnamespace = n.oid AND t.typname = 'name' AND n.nspname = 'pg_catalog'
-- name: result set metadata
SELECT c.oid, a.attnum, a.attname, c.relname, n.nspname, a.attnotnull OR (t.typtype = 'd' AND t.typnotnull),
  a.attidentity != '' OR pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%'
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON (c.relnamespace = n.oid)
  JOIN pg_catalog.pg_attribute a ON (c.oid = a.attrelid) JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid)
  LEFT JOIN pg_catalog.pg_attrdef d ON (d.adrelid = a.attrelid AND d.adnum = a.attnum)
  JOIN (SELECT 'shop.orders'::regclass::oid AS oid, 1 AS attnum UNION ALL SELECT 'shop.orders'::regclass::oid, 2) vals
    ON (c.oid = vals.oid AND a.attnum = vals.attnum)
