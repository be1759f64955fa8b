-- Catalog queries of the shape that dbt, Metabase, Superset, Grafana and other tools send; written for this test.
-- name: dbt list_relations
SELECT 'shopdb' AS database, tablename AS name, schemaname AS schema, 'table' AS type FROM pg_tables WHERE schemaname ILIKE 'shop'
UNION ALL
SELECT 'shopdb' AS database, viewname AS name, schemaname AS schema, 'view' AS type FROM pg_views WHERE schemaname ILIKE 'shop'
UNION ALL
SELECT 'shopdb' AS database, matviewname AS name, schemaname AS schema, 'materialized_view' AS type FROM pg_matviews WHERE schemaname ILIKE 'shop'
-- name: dbt columns
SELECT column_name, data_type, character_maximum_length, numeric_precision, numeric_scale FROM "shopdb".INFORMATION_SCHEMA.columns
WHERE table_name = 'customers' AND table_schema = 'shop' ORDER BY ordinal_position
-- name: dbt schemas
SELECT DISTINCT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema'
-- name: dbt catalog
SELECT sch.nspname AS table_schema, tbl.relname AS table_name, CASE WHEN v.mv_name IS NOT NULL THEN 'MATERIALIZED VIEW'
    WHEN tbl.relpersistence = 't' THEN 'LOCAL TEMPORARY' WHEN tbl.relkind = 'v' THEN 'VIEW' ELSE 'BASE TABLE' END AS table_type,
  tbl_desc.description AS table_comment, col.attname AS column_name, col.attnum AS column_index,
  pg_catalog.format_type(col.atttypid, col.atttypmod) AS column_type, col_desc.description AS column_comment,
  pg_get_userbyid(tbl.relowner) AS table_owner
FROM pg_catalog.pg_namespace sch
JOIN pg_catalog.pg_class tbl ON tbl.relnamespace = sch.oid
JOIN pg_catalog.pg_attribute col ON col.attrelid = tbl.oid
LEFT OUTER JOIN pg_catalog.pg_description tbl_desc ON (tbl_desc.objoid = tbl.oid AND tbl_desc.objsubid = 0)
LEFT OUTER JOIN pg_catalog.pg_description col_desc ON (col_desc.objoid = tbl.oid AND col_desc.objsubid = col.attnum)
LEFT OUTER JOIN (SELECT m.matviewname AS mv_name, m.schemaname AS mv_schema FROM pg_matviews m) v ON v.mv_name = tbl.relname AND v.mv_schema = sch.nspname
WHERE ((upper(sch.nspname) = upper('shop') AND upper(tbl.relname) = upper('orders')) OR upper(sch.nspname) = upper('public'))
  AND NOT pg_is_other_temp_schema(sch.oid) AND tbl.relpersistence IN ('p', 'u') AND tbl.relkind IN ('r', 'v', 'f', 'p') AND col.attnum > 0
  AND NOT col.attisdropped
ORDER BY sch.nspname, tbl.relname, col.attnum
-- name: dbt dependencies
WITH relation AS (SELECT pg_rewrite.ev_class AS class, pg_rewrite.oid AS id FROM pg_rewrite),
  class AS (SELECT oid AS id, relname AS name, relnamespace AS schema, relkind AS kind FROM pg_class),
  dependency AS (SELECT DISTINCT pg_depend.objid AS id, pg_depend.refobjid AS ref FROM pg_depend WHERE pg_depend.deptype = 'e')
SELECT class.name, dependency.ref FROM relation JOIN class ON relation.class = class.id JOIN dependency ON dependency.id = relation.id
-- name: metabase tables
SELECT n.nspname AS "schema", c.relname AS "name", CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW'
    WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END AS "type", d.description AS "description",
  NULLIF(stat.n_live_tup, 0) IS NULL AS "empty"
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
LEFT JOIN pg_catalog.pg_description AS d ON c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = CAST('pg_class' AS REGCLASS)
LEFT JOIN pg_stat_user_tables AS stat ON n.nspname = stat.schemaname AND c.relname = stat.relname
WHERE c.relnamespace = n.oid AND (n.nspname !~ '^information_schema|catalog_history|pg_') AND c.relkind IN ('r', 'p', 'v', 'f', 'm')
ORDER BY "type" ASC, "schema" ASC, "name" ASC
-- name: metabase columns
SELECT c.column_name AS "name", CASE WHEN c.udt_schema IN ('public', 'pg_catalog') THEN format('%s', c.udt_name)
    ELSE format('"%s"."%s"', c.udt_schema, c.udt_name) END AS "database-type", c.ordinal_position - 1 AS "database-position",
  c.table_schema AS "table-schema", c.table_name AS "table-name", pk.column_name IS NOT NULL AS "pk?",
  COL_DESCRIPTION(CAST(CAST(format('%I.%I', CAST(c.table_schema AS TEXT), CAST(c.table_name AS TEXT)) AS REGCLASS) AS OID), c.ordinal_position) AS "field-comment",
  (column_default IS NULL OR LOWER(column_default) = 'null') AND is_nullable = 'NO' AS "database-required"
FROM information_schema.columns AS c
LEFT JOIN (SELECT tc.table_schema, tc.table_name, kc.column_name FROM information_schema.table_constraints AS tc
  INNER JOIN information_schema.key_column_usage AS kc ON tc.constraint_name = kc.constraint_name AND tc.table_schema = kc.table_schema
    AND tc.table_name = kc.table_name WHERE tc.constraint_type = 'PRIMARY KEY') AS pk
  ON c.table_schema = pk.table_schema AND c.table_name = pk.table_name AND c.column_name = pk.column_name
WHERE c.table_schema = 'shop' ORDER BY "table-schema", "table-name", "database-position"
-- name: metabase privileges
SELECT NULL AS role, t.schemaname AS schema, t.objectname AS table,
  pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' || '"' || replace(t.objectname, '"', '""') || '"', 'SELECT') AS select
FROM (SELECT schemaname, tablename AS objectname FROM pg_catalog.pg_tables UNION SELECT schemaname, viewname AS objectname FROM pg_catalog.pg_views) t
WHERE t.schemaname !~ '^pg_' AND t.schemaname <> 'information_schema'
  AND pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage') ORDER BY 2, 3
-- name: metabase enums
SELECT nspname AS schema, typname AS name FROM pg_type t INNER JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid IN (SELECT DISTINCT enumtypid FROM pg_enum)
-- name: grafana tables
SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
    FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i,
    string_to_array(current_setting('search_path'), ',') s)
  THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog') ORDER BY 1
-- name: grafana columns
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
WHERE quote_ident(table_schema) || '.' || quote_ident(table_name) = 'shop.customers' ORDER BY ordinal_position
-- name: grafana version
SELECT current_setting('server_version_num')::int/100 AS version
-- name: power bi
SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.TABLE_TYPE FROM INFORMATION_SCHEMA.TABLES t
WHERE t.TABLE_SCHEMA NOT IN ('information_schema', 'pg_catalog') ORDER BY t.TABLE_SCHEMA, t.TABLE_NAME
-- name: power bi columns
SELECT COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, CASE WHEN (data_type LIKE '%unsigned%') THEN DATA_TYPE || ' unsigned' ELSE DATA_TYPE END AS DATA_TYPE
FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME = 'orders' ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
-- name: rails columns
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), a.attnotnull, a.atttypid, a.atttypmod, c.collname,
  col_description(a.attrelid, a.attnum) AS comment, attidentity AS identity, attgenerated AS attgenerated
FROM pg_attribute a LEFT JOIN pg_attrdef d ON a.attrelid = d.adrelid AND a.attnum = d.adnum
LEFT JOIN pg_type t ON a.atttypid = t.oid
LEFT JOIN pg_collation c ON a.attcollation = c.oid AND a.attcollation <> t.typcollation
WHERE a.attrelid = '"shop"."customers"'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
-- name: rails primary key
SELECT a.attname FROM (SELECT indrelid, indkey, generate_subscripts(indkey, 1) idx FROM pg_index
  WHERE indrelid = '"shop"."orders"'::regclass AND indisprimary) i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[i.idx] ORDER BY i.idx
-- name: key columns
SELECT kcu.table_name, kcu.column_name, kcu.ordinal_position FROM information_schema.table_constraints tc
JOIN information_schema.key_column_usage kcu USING (constraint_name, table_schema) WHERE tc.constraint_type = 'PRIMARY KEY'
  AND kcu.table_schema = 'shop' ORDER BY 1, 3
-- name: element types
SELECT c.table_name, c.column_name, e.data_type AS element_type FROM information_schema.columns c
LEFT JOIN information_schema.element_types e ON ((c.table_catalog, c.table_schema, c.table_name, 'TABLE', c.dtd_identifier)
  = (e.object_catalog, e.object_schema, e.object_name, e.object_type, e.collection_type_identifier))
WHERE c.table_schema = 'shop' ORDER BY c.table_name, c.ordinal_position
-- name: two lists side by side
SELECT t.a, t.b, t.n FROM pg_class c, unnest(ARRAY[1, 2, 3], ARRAY['x', 'y']) WITH ORDINALITY AS t(a, b, n) WHERE c.relname = 'orders' ORDER BY n
-- name: names of columns
SELECT 1, 'a', 'a'::text, true, 1::bigint, count(*), max(oid), CASE WHEN true THEN 1 END, CASE WHEN true THEN 'x' ELSE max(relname) END,
  coalesce(NULL, 1), nullif(1, 2), EXISTS(SELECT 1), ARRAY(SELECT 1), (SELECT 2 AS two), ARRAY[1, 2], upper('a'), -1, 1 + 1, current_schema,
  NULL, greatest(1, 2), (SELECT max(attnum) FROM pg_attribute), trim('a'), trim(leading 'a'), substring('abc', 1, 2), position('a' in 'ba'),
  current_schemas(false), pg_catalog.format_type(23, NULL), '1'::"char", 'x'::name, 25::oid, 'pg_class'::regclass
FROM pg_class WHERE relname = 'orders'
-- name: types for a driver
SELECT t.oid, ns.nspname AS ns, t.typname AS name, t.typtype AS kind, t.typreceive::oid != 0 AND t.typsend::oid != 0 AS has_bin_io,
  t.typelem AS elemtype, elem_t.typdelim AS elemdelim, range_t.rngsubtype AS range_subtype,
  (CASE WHEN t.typtype = 'c' THEN (SELECT array_agg(ia.atttypid ORDER BY ia.attnum) FROM pg_attribute ia INNER JOIN pg_class c ON ia.attrelid = c.oid
    WHERE ia.attnum > 0 AND NOT ia.attisdropped AND c.reltype = t.oid) ELSE NULL END) AS attrtypoids,
  (CASE WHEN t.typtype = 'c' THEN (SELECT array_agg(ia.attname::text ORDER BY ia.attnum) FROM pg_attribute ia INNER JOIN pg_class c ON ia.attrelid = c.oid
    WHERE ia.attnum > 0 AND NOT ia.attisdropped AND c.reltype = t.oid) ELSE NULL END) AS attrnames
FROM pg_catalog.pg_type AS t
INNER JOIN pg_catalog.pg_namespace ns ON ns.oid = t.typnamespace
LEFT JOIN pg_type elem_t ON t.typlen = -1 AND t.typelem != 0 AND t.typelem = elem_t.oid
LEFT JOIN pg_range range_t ON t.oid = range_t.rngtypid
WHERE t.oid = ANY(ARRAY[16, 1007, 3904, 1033]::oid[]) OR t.typname = 'events' ORDER BY 1
-- name: comments
SELECT nspname, obj_description(oid) AS by_oid, obj_description(oid, 'pg_namespace') AS by_class, obj_description(oid, 'pg_class') AS other
FROM pg_namespace WHERE nspname = 'shop'
-- name: comments by name
SELECT table_name, column_name, is_nullable::boolean, col_description((table_schema || '."' || table_name || '"')::regclass, ordinal_position)
FROM information_schema.columns WHERE table_schema = 'shop' ORDER BY 1, ordinal_position
-- name: types as text
SELECT c.relname, a.attname, a.atttypid::regtype::text AS type, t.typname::varchar(5) AS short, ((a.atttypmod - 4) >> 16) & 65535 AS precision
FROM pg_attribute a INNER JOIN pg_class c ON a.attrelid = c.oid INNER JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relkind = ANY(ARRAY['r', 'v']) AND c.relnamespace = 'shop'::regnamespace AND a.attnum > 0 ORDER BY 1, a.attnum
-- name: whole rows and groups
SELECT n.nspname, count(c) AS relations, string_agg(c.relname, ',' ORDER BY c.relname) FILTER (WHERE c.relkind = 'r') AS tables
FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'v') WHERE n.nspname IN ('shop', 'nothing') GROUP BY n.nspname
-- name: arrays of keys
SELECT conname, conkey[1], conkey[1:1], cardinality(conkey), conkey @> ARRAY[1]::int2[], contype::text, conkey::int[],
  (SELECT array_agg(attname::text ORDER BY u.o) FROM unnest(conkey) WITH ORDINALITY u(n, o) JOIN pg_attribute ON attnum = u.n AND attrelid = conrelid)
FROM pg_constraint WHERE connamespace = 'shop'::regnamespace ORDER BY 1
-- name: nested joins
SELECT att.attname, dep.deptype, cs.relname FROM pg_attribute att
LEFT OUTER JOIN (pg_depend dep JOIN pg_class cs ON dep.classid = 'pg_class'::regclass AND dep.objid = cs.oid AND cs.relkind = 'S')
  ON dep.refobjid = att.attrelid AND dep.refobjsubid = att.attnum
WHERE att.attrelid = 'shop.orders'::regclass AND att.attnum > 0 ORDER BY att.attnum
-- name: composite types
SELECT t.typname, t.typdelim, coalesce(a.names, '{}') AS names, coalesce(a.types, '{}') AS types FROM pg_type t
LEFT JOIN (SELECT attrelid, array_agg(attname::text) AS names, array_agg(atttypid) AS types FROM (SELECT * FROM pg_attribute WHERE attnum > 0 ORDER BY attnum) x
  GROUP BY attrelid) a ON a.attrelid = t.typrelid WHERE t.typname = 'events'
-- name: sets of names
SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg%' EXCEPT SELECT schemaname FROM pg_tables WHERE schemaname <> 'shop' ORDER BY 1
-- name: names in lists
SELECT relname FROM pg_class WHERE (oid IN ('shop.orders'::regclass, 'events'::regclass) OR oid = to_regclass('shop.nothing'))
  AND relname SIMILAR TO '(orders|events)' AND relname NOT ILIKE 'EV%' AND relname ~* 'ORD' AND (relname, relkind) IN (('orders', 'r'))
-- name: values
SELECT v.n, c.relname FROM (VALUES ('orders'::name, 1), ('nothing', 2)) AS v(n, i) LEFT JOIN pg_class c ON c.relname = v.n ORDER BY v.i
-- name: functions of types
SELECT ns.nspname, t.oid, t.typname, t.typelem, CASE WHEN proc.proname = 'array_recv' THEN 'a' ELSE t.typtype::text END AS kind, proc.oid,
  proc.pronargs, proc.prorettype, pg_get_function_result(proc.oid), pg_get_function_arguments(proc.oid), proc.oid::regproc::text, t.typsend::oid
FROM pg_type AS t JOIN pg_namespace AS ns ON (ns.oid = t.typnamespace) JOIN pg_proc AS proc ON proc.oid = t.typreceive
WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typrelid = 0 AND t.typname NOT LIKE '\_pg\_%' AND (t.typreceive <> 0 OR t.typarray <> 0) ORDER BY t.oid
-- name: constrained tables
SELECT u.table_schema, u.table_name, u.constraint_name, c.column_name FROM information_schema.constraint_table_usage u
JOIN information_schema.constraint_column_usage c USING (table_schema, table_name, constraint_name) WHERE u.table_schema = 'shop' ORDER BY 1, 2, 3, 4
-- name: subscripts of vectors
SELECT k.keys[0] AS first, k.keys[k.n - 1] AS last, array_lower(k.keys, 1), array_upper(k.keys, 1), array_position(k.keys, 2::int2), (k.keys::int2[])[0],
  generate_subscripts(k.keys, 1) AS s, array_upper(k.columns, 1), array_position(k.columns, 2::int2), k.columns[1]
FROM (SELECT i.indkey AS keys, i.indnatts AS n, c.conkey AS columns FROM pg_index i JOIN pg_constraint c ON c.conindid = i.indexrelid
  WHERE i.indrelid = 'shop.orders'::regclass) k ORDER BY s
-- name: parts of texts
SELECT substr(nspname, 0, 4), substring(nspname from 2 for 2), left(nspname, 2), strpos(nspname, 'o'), split_part('a.b', '.', 2), length(nspname),
  replace(nspname, 's', ''), overlay('abc' placing 'x' from 2 for 1), initcap('ab cd'), lpad('a', 3, '*'), reverse('ab'), repeat('a', 2), concat_ws('-', 'a', NULL, 'b'),
  7 / 2 AS half, -7 / 2 AS minus, 7 % 3 AS rest, 2 ^ 3 AS power, 'a' || NULL AS nothing, concat('a', NULL)
FROM pg_namespace WHERE nspname = 'shop'
