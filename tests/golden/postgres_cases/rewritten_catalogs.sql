-- The source's own catalogs are written anew, again and again, between rows and changes of structure.
-- replicate t
-- setup
CREATE TABLE t (id serial PRIMARY KEY, n int, v varchar(120));
CREATE TABLE large AS SELECT repeat(string_agg(to_char(g, 'FM0000'), ''), 50) AS v FROM generate_series(1, 500) g;
DO $$
BEGIN
  EXECUTE format('COMMENT ON TABLE t IS %L', (SELECT v FROM large));
END $$;
-- workload
INSERT INTO t (n) VALUES (1);

BEGIN;
INSERT INTO t (n) VALUES (2);
ALTER TABLE t ADD COLUMN one int;
INSERT INTO t (n, one) VALUES (3, 1);
COMMIT;

BEGIN;
INSERT INTO t (n) VALUES (3);
ALTER TABLE t ADD COLUMN two int;
INSERT INTO t (n, one, two) VALUES (4, 2, 1);
COMMIT;

VACUUM FULL pg_am;

VACUUM FULL pg_proc;

VACUUM FULL pg_type;

VACUUM FULL pg_index;

BEGIN;
CLUSTER pg_class USING pg_class_oid_index;
CLUSTER pg_class USING pg_class_oid_index;
ROLLBACK;

BEGIN;
CLUSTER pg_class USING pg_class_oid_index;
CLUSTER pg_class USING pg_class_oid_index;
COMMIT;

VACUUM FULL pg_class;

REINDEX TABLE pg_class;

REINDEX INDEX pg_class_tblspc_relfilenode_index;

INSERT INTO t (n, one) VALUES (5, 3);
-- wait
BEGIN;
INSERT INTO t (n, one) VALUES (6, 4);
ALTER TABLE t ADD COLUMN three int;
INSERT INTO t (n, one, three) VALUES (7, 5, 1);
COMMIT;

CHECKPOINT;

VACUUM FULL pg_description;

VACUUM FULL large;

INSERT INTO t (n, one, three) VALUES (8, 6, 1);

VACUUM FULL pg_attribute;

VACUUM FULL pg_description;

UPDATE t SET n = -n;
