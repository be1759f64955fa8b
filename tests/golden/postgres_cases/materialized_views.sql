-- A materialized view over a followed table is made, filled anew and dropped: nobody follows its rows.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, v text);
INSERT INTO t VALUES (1, 'one');
-- workload
INSERT INTO t VALUES (2, 'two');

CREATE MATERIALIZED VIEW seen AS SELECT * FROM t;
-- session compare
the table is followed
-- session a
CREATE UNIQUE INDEX ON seen (id);
UPDATE t SET v = 'changed' WHERE id = 1;

REFRESH MATERIALIZED VIEW seen;

BEGIN;
INSERT INTO t VALUES (3, 'three');
REFRESH MATERIALIZED VIEW CONCURRENTLY seen;
DELETE FROM t WHERE id = 2;
COMMIT;

DROP MATERIALIZED VIEW seen;
