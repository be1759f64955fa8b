-- Large values, compressed and not, stay as they are while other columns change; one is set by an upsert that reads it.
-- replicate t
-- setup
CREATE TABLE t (id serial PRIMARY KEY, big text, n float8, compressed text, m float8);
INSERT INTO t (big, compressed) SELECT string_agg(g::text, ''), string_agg((g * 2)::text, '') FROM generate_series(1, 2000) g;
-- workload
INSERT INTO t (big, n, compressed) SELECT string_agg(g::text, ''), 1, string_agg((g * 2)::text, '') FROM generate_series(1, 2000) g;
INSERT INTO t (compressed) SELECT repeat(string_agg(to_char(g, 'FM0000'), ''), 50) FROM generate_series(1, 500) g;

UPDATE t SET big = (SELECT string_agg(g::text, '') FROM generate_series(1, 2100) g) WHERE id = 1;

UPDATE t SET n = 123.456 WHERE id < 3;
-- session compare
large values are unharmed
-- session a
INSERT INTO t (id, compressed) VALUES (3, 'before ')
ON CONFLICT (id) DO UPDATE SET compressed = EXCLUDED.compressed || t.compressed;

UPDATE t SET m = 7 WHERE id = 3;

UPDATE t SET id = 40 WHERE id = 2;
DELETE FROM t WHERE id = 1;
-- wait
UPDATE t SET compressed = big, big = compressed;
UPDATE t SET n = -n;
