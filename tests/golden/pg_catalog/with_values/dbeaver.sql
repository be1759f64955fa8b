-- Statements of the form that DBeaver prepares for a connection to PostgreSQL 15; written for these tests.
-- name: database
-- $1 text: current_database()
SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datname = $1
-- name: databases
-- $1 text: current_database()
SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE 1 = 1 AND datallowconn AND NOT datistemplate AND db.datname = $1 ORDER BY db.datname
-- name: search path
SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'search_path'
-- name: a column of the catalog
SELECT 1 FROM pg_catalog.pg_attribute s JOIN pg_catalog.pg_class p ON s.attrelid = p.oid JOIN pg_catalog.pg_namespace n ON p.relnamespace = n.oid
WHERE p.relname = 'pg_type' AND n.nspname = 'pg_catalog' AND s.attname = 'typcategory'
-- name: schemas
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
WHERE nspname = 'shop' ORDER BY nspname
-- name: schema by name
-- $1 text: '{schema}'
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
WHERE nspname = $1 ORDER BY nspname
-- name: types
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description
FROM pg_catalog.pg_type t
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid
WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')
  AND t.typnamespace = $1 ORDER BY t.oid
-- name: type by number
-- $1 bigint: 1700
SELECT t.oid, t.typname, t.typtype, t.typcategory, t.typlen, t.typelem FROM pg_catalog.pg_type t WHERE t.oid = $1
-- name: enum values
-- $1 bigint: '{table}'::regclass::oid
SELECT e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid = $1 ORDER BY e.enumsortorder
-- name: attributes of a type
-- $1 bigint: '{table}'::regclass::oid
SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid) AS def_value, dsc.description
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.oid = $1 ORDER BY a.attnum
-- name: roles
-- $1 text: current_user
SELECT a.oid, a.*, pd.description FROM pg_catalog.pg_roles a
LEFT JOIN pg_catalog.pg_shdescription pd ON a.oid = pd.objoid WHERE a.rolname = $1 ORDER BY a.rolname
-- name: members of a role
-- $1 text: current_user
SELECT a.*, r.rolname AS role_name, pg_catalog.pg_get_userbyid(a.member) AS member_name FROM pg_catalog.pg_auth_members a
JOIN pg_catalog.pg_roles r ON r.oid = a.roleid WHERE r.rolname = $1
-- name: access methods
SELECT am.oid, am.* FROM pg_catalog.pg_am am WHERE am.amname IN ('heap', 'btree') ORDER BY am.oid
-- name: encodings
SELECT c.contoencoding AS encid, pg_catalog.pg_encoding_to_char(c.contoencoding) AS encname FROM pg_catalog.pg_conversion c
WHERE c.contoencoding < 0 GROUP BY c.contoencoding ORDER BY 2
-- name: languages
SELECT l.oid, l.lanname FROM pg_catalog.pg_language l WHERE l.lanname <> 'plpgsql' ORDER BY l.oid
-- name: foreign data wrappers
SELECT l.oid, l.*, p.pronamespace AS handler_schema_id FROM pg_catalog.pg_foreign_data_wrapper l
LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = l.fdwhandler ORDER BY l.fdwname
-- name: foreign servers
SELECT l.oid, l.* FROM pg_catalog.pg_foreign_server l ORDER BY l.srvname
-- name: tablespaces
SELECT t.oid, t.*, pg_catalog.pg_tablespace_location(t.oid) AS loc FROM pg_catalog.pg_tablespace t ORDER BY t.oid
-- name: event triggers
SELECT pe.oid, pe.* FROM pg_catalog.pg_event_trigger pe
-- name: collations
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT c.oid, c.* FROM pg_catalog.pg_collation c WHERE c.collnamespace = $1 ORDER BY c.oid
-- name: extensions
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT e.oid, cfg.tbls, e.* FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
LEFT JOIN (SELECT array_agg(ns.nspname || '.' || cls.relname) AS tbls, oid_ext
  FROM (SELECT unnest(e1.extconfig) AS oid, e1.oid AS oid_ext FROM pg_catalog.pg_extension e1) c
  JOIN pg_catalog.pg_class cls ON cls.oid = c.oid JOIN pg_catalog.pg_namespace ns ON ns.oid = cls.relnamespace GROUP BY oid_ext
) cfg ON cfg.oid_ext = e.oid
WHERE e.extnamespace = $1 ORDER BY e.oid
-- name: default privileges
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT * FROM pg_catalog.pg_default_acl WHERE defaclnamespace = $1
-- name: tables
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = $1 AND c.relkind NOT IN ('i', 'I', 'c')
-- name: tables with dependencies
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT c.oid, c.*, d.description, dep.objid, dep.refobjsubid FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
LEFT OUTER JOIN pg_catalog.pg_depend dep ON dep.refobjid = c.oid AND dep.deptype = 'i' AND dep.refobjsubid <> 0 AND dep.classid = dep.refclassid
WHERE c.relnamespace = $1 AND c.relkind NOT IN ('i', 'I', 'c')
-- name: table by name
-- $1 bigint: '{schema}'::regnamespace::oid
-- $2 text: 'orders'
SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = $1 AND c.relkind NOT IN ('i', 'I', 'c') AND relname = $2
-- name: sizes of tables
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT c.oid, pg_catalog.pg_total_relation_size(c.oid) AS total_rel_size, pg_catalog.pg_relation_size(c.oid) AS rel_size
FROM pg_catalog.pg_class c WHERE c.relnamespace = $1
-- name: columns of a schema
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.relnamespace = $1 ORDER BY a.attnum
-- name: columns of a table
-- $1 bigint: '{table}'::regclass::oid
SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid
FROM pg_catalog.pg_attribute a
INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.oid = $1 ORDER BY a.attnum
-- name: constraints of a schema
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description,
  CASE WHEN c.contype = 'c' THEN "substring"(pg_get_constraintdef(c.oid), 7) ELSE NULL END AS consrc_copy
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass
WHERE t.relnamespace = $1 ORDER BY c.oid
-- name: constraints of a table
-- $1 bigint: '{table}'::regclass::oid
SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description, NULL AS consrc_copy
FROM pg_catalog.pg_constraint c
INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass
WHERE c.conrelid = $1 ORDER BY c.oid
-- name: references to a table
-- $1 bigint: '{table}'::regclass::oid
SELECT con.oid, con.*, tab.relname AS tabrelname FROM pg_catalog.pg_constraint con, pg_catalog.pg_class tab
WHERE con.contype = 'f' AND con.confrelid = $1 AND tab.oid = con.conrelid
-- name: indexes of a schema
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname AS tabrelname, dsc.description,
  pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr,
  pg_catalog.pg_relation_size(i.indexrelid) AS index_rel_size, pg_catalog.pg_stat_get_numscans(i.indexrelid) AS index_num_scans
FROM pg_catalog.pg_index i
INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
WHERE c.relnamespace = $1 ORDER BY tabrelname, c.relname
-- name: indexes of a table
-- $1 bigint: '{table}'::regclass::oid
SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname AS tabrelname, dsc.description,
  pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr
FROM pg_catalog.pg_index i
INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
WHERE i.indrelid = $1 ORDER BY c.relname
-- name: text of an index
-- $1 bigint: (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = '{table}'::regclass)
SELECT pg_catalog.pg_get_indexdef($1) AS definition
-- name: column of an index
-- $1 bigint: (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = '{table}'::regclass)
-- $2 integer: 2
SELECT pg_catalog.pg_get_indexdef($1, $2, true) AS expression
-- name: view
-- $1 bigint: '{table}'::regclass::oid
SELECT pg_catalog.pg_get_viewdef(c.oid, true) AS definition FROM pg_catalog.pg_class c WHERE c.relkind = 'v' AND c.oid = $1
-- name: partitions and children
-- $1 bigint: '{table}'::regclass::oid
SELECT c.relnamespace, c.oid, i.* FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c WHERE i.inhparent = $1 AND c.oid = i.inhrelid
-- name: parents
-- $1 bigint: '{table}'::regclass::oid
SELECT i.*, c.relnamespace FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c WHERE i.inhrelid = $1 AND c.oid = i.inhparent ORDER BY i.inhseqno
-- name: procedures
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT p.oid AS poid, p.*, pg_catalog.pg_get_expr(p.proargdefaults, 0) AS arg_defaults, d.description FROM pg_catalog.pg_proc p
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = p.oid AND d.classoid = 'pg_proc'::regclass AND d.objsubid = 0
WHERE p.pronamespace = $1 ORDER BY p.proname
-- name: aggregates
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT p.oid AS proc_oid, p.proname AS proc_name, a.* FROM pg_catalog.pg_aggregate a, pg_catalog.pg_proc p
WHERE p.oid = a.aggfnoid AND p.pronamespace = $1 ORDER BY p.proname
-- name: triggers
-- $1 bigint: '{table}'::regclass::oid
SELECT x.oid, x.*, p.pronamespace AS func_schema_id, d.description FROM pg_catalog.pg_trigger x
LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = x.oid AND d.objsubid = 0 WHERE x.tgrelid = $1 AND NOT x.tgisinternal
-- name: rules
-- $1 bigint: '{table}'::regclass::oid
SELECT r.oid, r.*, pg_catalog.pg_get_ruledef(r.oid) AS definition FROM pg_catalog.pg_rewrite r WHERE r.ev_class = $1
-- name: policies
-- $1 text: '{schema}'
SELECT * FROM pg_catalog.pg_policies WHERE schemaname = $1
-- name: sequences
-- $1 bigint: '{schema}'::regnamespace::oid
SELECT s.*, c.relname FROM pg_catalog.pg_sequence s JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid WHERE c.relnamespace = $1
-- name: privileges of a table
-- $1 text: '{schema}'
-- $2 text: 'orders'
SELECT grantee, privilege_type FROM information_schema.table_privileges
WHERE table_schema = $1 AND table_name = $2 AND privilege_type = 'SELECT'
-- name: dependents
-- $1 bigint: '{table}'::regclass::oid
SELECT DISTINCT dep.deptype, dep.classid, cl.relname AS dependent_name FROM pg_catalog.pg_depend dep
LEFT JOIN pg_catalog.pg_class cl ON dep.objid = cl.oid
WHERE dep.refobjid = $1 AND dep.deptype = 'x'
-- name: objects by name
-- $1 text: 'ord%'
SELECT x.oid, x.relname, x.relnamespace, x.relkind, d.description FROM pg_catalog.pg_class x
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = x.oid AND d.objsubid = 0
WHERE x.relkind IN ('r', 'v', 'm') AND x.relname ILIKE $1 AND x.relnamespace IN (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'shop')
ORDER BY x.relname LIMIT 100
-- name: sessions
SELECT count(*) > 0 AS shown FROM pg_catalog.pg_stat_activity sa WHERE sa.datname = current_database()
