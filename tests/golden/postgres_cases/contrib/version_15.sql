-- The oldest server with all of these: streams, prepared transactions, partitions, whole rows, computed columns, a column dropped, truncate.
-- replicate t
-- replicate parted
-- replicate bag
-- setup
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE TABLE parted (a int PRIMARY KEY, b text) PARTITION BY LIST (a);
CREATE TABLE parted_1 (b text, a int NOT NULL);
ALTER TABLE parted ATTACH PARTITION parted_1 FOR VALUES IN (1, 2);
CREATE TABLE parted_2 PARTITION OF parted DEFAULT;
CREATE TABLE bag (a int, gone int, b text, twice int GENERATED ALWAYS AS (a * 2) STORED);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO t VALUES (1, 'copied');
INSERT INTO parted VALUES (1, 'copied'), (3, 'copied');
INSERT INTO bag VALUES (1, 1, 'x'), (1, 1, 'x');
-- workload
BEGIN;
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(2, 2000) g;
SAVEPOINT s;
DELETE FROM t WHERE a > 100;
ROLLBACK TO s;
UPDATE t SET b = repeat(b, 3) WHERE a % 2 = 0;
-- session b
INSERT INTO parted VALUES (2, 'beside'), (7, 'beside');
-- session compare
the large one is open
-- session a
PREPARE TRANSACTION 'version_15';
-- session b
UPDATE parted SET a = 9 WHERE a = 1;
-- session compare
and prepared
-- session a
COMMIT PREPARED 'version_15';
-- session compare
and there
-- session a
ALTER TABLE bag DROP COLUMN gone;
-- wait
UPDATE bag SET b = 'y' WHERE ctid = '(0,1)';
TRUNCATE t;
BEGIN;
INSERT INTO t VALUES (1, 'again');
ALTER TABLE t ADD COLUMN c int DEFAULT 5;
INSERT INTO t VALUES (2, 'behind', 6);
COMMIT;
TRUNCATE parted;
INSERT INTO parted VALUES (1, 'again'), (10, 'again');
