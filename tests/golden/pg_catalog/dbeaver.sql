-- Catalog queries of the shape that DBeaver sends; written for this test.
-- name: session
SELECT current_schema(), session_user
-- name: databases
SELECT db.datname, db.datallowconn, pg_catalog.pg_encoding_to_char(db.encoding) AS encoding FROM pg_catalog.pg_database db
WHERE datallowconn AND NOT datistemplate AND datname = current_database() ORDER BY db.datname
-- name: schemas
SELECT n.oid, n.nspname, d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
WHERE n.nspname = 'shop' ORDER BY nspname
-- name: types
SELECT t.oid, t.typname, t.typlen, t.typtype, t.typcategory, t.typelem, t.typarray, t.typinput, t.typoutput, c.relkind,
  format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid AND d.objsubid = 7
WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')
  AND t.oid < 4000 AND t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b'
ORDER BY t.oid
-- name: tables
SELECT c.oid, c.relname, c.relkind, c.relhasindex, c.relpersistence, d.description,
  CASE WHEN c.relpartbound IS NULL THEN NULL ELSE pg_catalog.pg_get_expr(c.relpartbound, c.oid) END AS partition_expr,
  pg_catalog.pg_get_partkeydef(c.oid) AS partition_key, ARRAY(SELECT relname::text FROM pg_catalog.pg_inherits i, pg_catalog.pg_class p
    WHERE i.inhrelid = c.oid AND p.oid = i.inhparent) AS parents
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
LEFT OUTER JOIN pg_catalog.pg_depend dep ON dep.refobjid = c.oid AND dep.deptype = 'e'
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'shop') AND c.relkind NOT IN ('i', 'I', 'c') AND dep.objid IS NULL
ORDER BY c.relname
-- name: columns
SELECT c.relname, a.attname, a.attnum, a.atttypid, a.attnotnull, a.atttypmod, a.attlen, a.attndims,
  pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum
  AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.oid = 'shop.customers'::regclass AND a.attnum > 0 ORDER BY a.attnum
-- name: constraints
SELECT c.conname, c.contype, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description,
  CASE WHEN c.contype = 'c' THEN "substring"(pg_get_constraintdef(c.oid), 7) ELSE NULL END AS consrc_copy,
  pg_catalog.pg_get_constraintdef(c.oid) AS definition, c.conkey
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass
WHERE c.contype <> 'x' AND t.relnamespace::regnamespace::text = 'shop' ORDER BY c.conname
-- name: indexes
SELECT c.relname, i.indisunique, i.indisprimary, i.indkey, i.indoption, tc.relname AS tabrelname, dsc.description,
  pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr,
  pg_catalog.pg_get_indexdef(i.indexrelid) AS definition
FROM pg_catalog.pg_index i
INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
WHERE tc.relnamespace::regnamespace::text = 'shop' ORDER BY tabrelname, c.relname
-- name: columns of indexes
SELECT c.relname, k.attnum, k.position, a.attname
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, position)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE c.relname = 'orders_pkey' ORDER BY 1, 3
-- name: sequences and procedures
SELECT p.proname FROM pg_catalog.pg_proc p LEFT OUTER JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'shop'::regnamespace ORDER BY p.proname
-- name: triggers
SELECT x.tgname, p.proname FROM pg_catalog.pg_trigger x JOIN pg_catalog.pg_class c ON c.oid = x.tgrelid
LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid WHERE NOT x.tgisinternal AND c.relname = 'orders'
-- name: inheritance
SELECT i.*, c.relnamespace FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c WHERE i.inhrelid = 'shop.orders'::regclass AND c.oid = i.inhparent
-- name: enums
SELECT e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid = 0 ORDER BY e.enumsortorder
-- name: settings
SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN ('standard_conforming_strings', 'server_encoding') ORDER BY name
