-- Transactions of which the whole, a part, a part of a part or several parts are large.
-- replicate t
-- setup
CREATE TABLE t (id serial PRIMARY KEY, data text);
-- workload
BEGIN;
INSERT INTO t (data) SELECT 'whole:' || g FROM generate_series(1, 1200) g;
COMMIT;

BEGIN;
SAVEPOINT s;
INSERT INTO t (data) SELECT 'part alone:' || g FROM generate_series(1, 1200) g;
RELEASE SAVEPOINT s;
COMMIT;

BEGIN;
SAVEPOINT s;
INSERT INTO t (data) SELECT 'part, then whole:' || g FROM generate_series(1, 1200) g;
RELEASE SAVEPOINT s;
INSERT INTO t (data) SELECT 'part, then whole 2:' || g FROM generate_series(1, 1200) g;
COMMIT;
-- session compare
parts before the rest
-- session a
BEGIN;
SAVEPOINT s;
INSERT INTO t (data) SELECT 'large part, then one:' || g FROM generate_series(1, 1200) g;
RELEASE SAVEPOINT s;
INSERT INTO t (data) VALUES ('large part, then one');
COMMIT;

BEGIN;
INSERT INTO t (data) SELECT 'whole, then large part:' || g FROM generate_series(1, 1200) g;
SAVEPOINT s;
INSERT INTO t (data) SELECT 'whole, then large part 2:' || g FROM generate_series(1, 1200) g;
RELEASE SAVEPOINT s;
COMMIT;

BEGIN;
INSERT INTO t (data) SELECT 'whole, then one:' || g FROM generate_series(1, 1200) g;
SAVEPOINT s;
UPDATE t SET data = 'one of the part' WHERE id = (SELECT min(id) FROM t);
RELEASE SAVEPOINT s;
COMMIT;
-- session compare
parts behind the rest
-- session a
BEGIN;
SAVEPOINT s1;
INSERT INTO t (data) VALUES ('small, then large');
RELEASE SAVEPOINT s1;
SAVEPOINT s2;
UPDATE t SET data = data || ' changed' WHERE id % 5 = 0;
RELEASE SAVEPOINT s2;
COMMIT;

BEGIN;
SAVEPOINT s1;
INSERT INTO t (data) SELECT 'large in large:' || g FROM generate_series(1, 1200) g;
SAVEPOINT s2;
DELETE FROM t WHERE id % 7 = 0;
RELEASE SAVEPOINT s2;
RELEASE SAVEPOINT s1;
COMMIT;

BEGIN;
SAVEPOINT s1;
INSERT INTO t (data) SELECT 'one aborts:' || g FROM generate_series(1, 1200) g;
SAVEPOINT s2;
DELETE FROM t WHERE id % 2 = 0;
ROLLBACK TO SAVEPOINT s2;
SAVEPOINT s3;
UPDATE t SET data = data || ' again' WHERE id % 6 = 0;
RELEASE SAVEPOINT s1;
COMMIT;
