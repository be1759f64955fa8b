-- Catalog queries of the shape that pgAdmin sends; written for this test.
-- name: connection
SELECT db.datname, db.datallowconn, has_database_privilege(db.oid, 'CONNECT') AS can_connect, datdba = 10 AS owned
FROM pg_catalog.pg_database db WHERE db.datname = current_database()
-- name: user
SELECT roles.oid AS id, roles.rolname AS name, CASE WHEN pg_catalog.pg_has_role(roles.oid, 'MEMBER') THEN true ELSE false END AS member
FROM pg_catalog.pg_roles AS roles WHERE rolname = current_user
-- name: recovery
SELECT CASE WHEN usesuper THEN pg_catalog.pg_is_in_recovery() ELSE false END AS inrecovery FROM pg_catalog.pg_user WHERE usename = current_user
-- name: schemas
SELECT nsp.nspname AS name, nsp.nspname = ANY('{shop,other}'::name[]) AS listed, has_schema_privilege(nsp.oid, 'USAGE') AS has_usage, des.description
FROM pg_catalog.pg_namespace nsp
LEFT OUTER JOIN pg_catalog.pg_description des ON (des.objoid = nsp.oid AND des.classoid = 'pg_namespace'::regclass)
WHERE nspname NOT LIKE E'pg\\_%' AND nsp.nspname NOT IN ('information_schema', 'public')
  AND NOT ((nsp.nspname = 'pgagent' AND EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'pga_job' AND relnamespace = nsp.oid LIMIT 1)))
ORDER BY nspname
-- name: tables
SELECT rel.oid, rel.relname AS name,
  (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = rel.oid AND tgisinternal = false) AS triggercount,
  (SELECT count(*) FROM pg_catalog.pg_inherits i WHERE i.inhrelid = rel.oid LIMIT 1) AS is_inherits, des.description
FROM pg_catalog.pg_class rel
LEFT OUTER JOIN pg_catalog.pg_description des ON (des.objoid = rel.oid AND des.objsubid = 0 AND des.classoid = 'pg_class'::regclass)
WHERE rel.relkind IN ('r', 's', 't', 'p') AND rel.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'shop')
  AND NOT rel.relispartition ORDER BY rel.relname
-- name: columns
SELECT att.attname AS name, att.attnum, pg_catalog.format_type(ty.oid, att.atttypmod) AS displaytypname,
  CASE WHEN ty.typelem > 0 THEN ty.typelem ELSE ty.oid END AS elemoid, tn.nspname AS typnspname, et.typname AS elemtypname,
  att.attnotnull AS not_null, CASE WHEN length(coll.collname::text) > 0 AND length(nspc.nspname::text) > 0
    THEN pg_catalog.concat(pg_catalog.quote_ident(nspc.nspname), '.', pg_catalog.quote_ident(coll.collname)) ELSE '' END AS collspcname,
  EXISTS(SELECT 1 FROM pg_catalog.pg_constraint WHERE conrelid = att.attrelid AND contype = 'f' AND att.attnum = ANY(conkey)) AS is_fk,
  EXISTS(SELECT 1 FROM pg_catalog.pg_constraint c WHERE c.conrelid = att.attrelid AND c.contype = 'p' AND att.attnum = ANY(c.conkey)) AS is_pk
FROM pg_catalog.pg_attribute att
JOIN pg_catalog.pg_type ty ON ty.oid = atttypid
JOIN pg_catalog.pg_namespace tn ON tn.oid = ty.typnamespace
JOIN pg_catalog.pg_class cl ON cl.oid = att.attrelid
LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = ty.typelem
LEFT OUTER JOIN pg_catalog.pg_collation coll ON att.attcollation = coll.oid
LEFT OUTER JOIN pg_catalog.pg_namespace nspc ON coll.collnamespace = nspc.oid
WHERE att.attrelid = 'shop.customers'::regclass::oid AND att.attnum > 0 AND att.attisdropped IS false ORDER BY att.attnum
-- name: primary key
SELECT cls.relname AS name, CASE contype WHEN 'p' THEN desp.description ELSE NULL END AS comment, indisclustered, indisvalid,
  con.condeferrable, array_to_string(ARRAY(SELECT attname FROM pg_catalog.pg_attribute
    WHERE attrelid = con.conrelid AND attnum = ANY(con.conkey) ORDER BY array_position(con.conkey, attnum)), ',') AS columns
FROM pg_catalog.pg_index idx
JOIN pg_catalog.pg_class cls ON cls.oid = indexrelid
LEFT OUTER JOIN pg_catalog.pg_constraint con ON (con.conindid = cls.oid AND con.contype = 'p')
LEFT OUTER JOIN pg_catalog.pg_description desp ON (desp.objoid = con.oid AND desp.objsubid = 0 AND desp.classoid = 'pg_constraint'::regclass)
WHERE indrelid = 'shop.orders'::regclass AND contype = 'p' ORDER BY cls.relname
-- name: view
SELECT c.relname, c.reltablespace, pg_catalog.pg_get_userbyid(c.relowner) AS owner, pg_catalog.array_to_string(c.relacl::text[], ', ') AS acl,
  nsp.nspname AS schema, c.relkind
FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_namespace nsp ON nsp.oid = c.relnamespace
WHERE ((c.relhasrules AND (EXISTS (SELECT r.rulename FROM pg_catalog.pg_rewrite r
  WHERE ((r.ev_class = c.oid) AND (bpchar(r.ev_type) = '1'::bpchar))))) OR (c.relkind = 'v'::char)) AND nsp.nspname = 'public' ORDER BY c.relname
-- name: view definition
SELECT pg_catalog.pg_get_viewdef('public.big_orders'::regclass, true)
-- name: functions
SELECT pr.oid, pr.proname || '(' || COALESCE(pg_catalog.pg_get_function_identity_arguments(pr.oid), '') || ')' AS name
FROM pg_catalog.pg_proc pr WHERE pr.prokind IN ('f', 'w') AND pronamespace = 'shop'::regnamespace::oid ORDER BY proname
-- name: index keys
SELECT i.indrelid::regclass::text AS on_table, i.indkey[0] AS first_key, generate_subscripts(i.indkey, 1) AS subscript, array_length(i.indkey, 1) AS keys
FROM pg_catalog.pg_index i WHERE i.indrelid = 'shop.orders'::regclass ORDER BY 3
-- name: storage parameters
SELECT rel.relname, substring(pg_catalog.array_to_string(rel.reloptions, ',') FROM 'fillfactor=([0-9]*)') AS fillfactor,
  (substring('a=5,autovacuum_enabled=false' FROM 'autovacuum_enabled=([a-z|0-9]*)'))::bool AS autovacuum_enabled,
  substring('shop.orders' FROM '[a-z]+$') AS without_group, substring('shop.orders' FROM 'x+') AS no_match, substring('orders' FROM 2 FOR 3) AS by_number,
  (SELECT st.setting FROM pg_catalog.pg_show_all_settings() st WHERE st.name = 'default_table_access_method') AS default_amname
FROM pg_catalog.pg_class rel WHERE rel.relnamespace = 'shop'::regnamespace AND rel.relkind = 'r' ORDER BY rel.relname
-- name: privileges
SELECT a.deftype, (a.d).grantee AS grantee, (a.d).grantor AS grantor, (a.d).privilege_type AS privilege_type, (a.d).is_grantable AS is_grantable
FROM (SELECT 'relacl' AS deftype, pg_catalog.aclexplode(rel.relacl) AS d FROM pg_catalog.pg_class rel WHERE rel.relname = 'orders') a
-- name: argument types
SELECT pr.proname, pg_catalog.oidvectortypes(pr.proargtypes) AS types, COALESCE(pr.proallargtypes::regtype[], pr.proargtypes::regtype[])::text[] AS listed
FROM pg_catalog.pg_proc pr WHERE pr.proname IN ('int4in', 'numeric_in') AND pr.pronamespace = 'pg_catalog'::regnamespace ORDER BY pr.proname
-- name: encodings
SELECT encode(decode('00ff', 'hex'), 'hex') AS hex, encode(decode('AP8=', 'base64'), 'base64') AS base64, encode('abc'::bytea, 'escape') AS escape
-- name: what only a server has
SELECT count(*) AS casts FROM pg_catalog.pg_cast ca WHERE ca.oid > 16383
-- name: text search
SELECT tmpl.oid, tmpl.tmplname FROM pg_catalog.pg_ts_template tmpl WHERE tmpl.tmplnamespace = 'shop'::regnamespace ORDER BY tmplname
-- name: blocking sessions
SELECT pg_catalog.array_length(pg_catalog.pg_blocking_pids(pid), 1) AS blocking, pg_catalog.host(client_addr) IS NULL AS is_local
FROM pg_catalog.pg_stat_activity WHERE pid = -1
