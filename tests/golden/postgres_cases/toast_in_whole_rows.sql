-- Whole rows larger than a page identify, in a transaction large enough to be spilled.
-- replicate t
-- setup
CREATE TABLE t (id serial UNIQUE NOT NULL, k text PRIMARY KEY, one text, two text);
ALTER TABLE t REPLICA IDENTITY FULL;
ALTER TABLE t ALTER k SET STORAGE EXTERNAL, ALTER one SET STORAGE EXTERNAL, ALTER two SET STORAGE EXTERNAL;
-- workload
INSERT INTO t (k) VALUES (repeat('9876543210', 260));

UPDATE t SET one = repeat(k, 40);

UPDATE t SET two = one;
-- session compare
three large values
-- session a
BEGIN;
INSERT INTO t (k) SELECT g::text FROM generate_series(1, 3000) g;
UPDATE t SET one = two || 'x' WHERE id = 1;
UPDATE t SET two = 'small' WHERE id = 1;
DELETE FROM t WHERE id = 2;
COMMIT;
-- session compare
one is kept
-- session a
DELETE FROM t WHERE id = 1;
