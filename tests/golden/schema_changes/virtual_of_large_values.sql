-- A virtual column is made of large values, which updates of the others leave out.
-- replicate t
-- replicate bag insert_only
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, large text, parts text[], made text GENERATED ALWAYS AS (coalesce(n::text, '-') || large || coalesce(parts[1], '-')), size int GENERATED ALWAYS AS (length(large)), fixed int GENERATED ALWAYS AS (7));
CREATE TABLE bag (n int, large text, made text GENERATED ALWAYS AS (n::text || large));
ALTER TABLE t ALTER large SET STORAGE EXTERNAL, ALTER parts SET STORAGE EXTERNAL;
INSERT INTO t (id, n, large, parts) VALUES (1, 10, repeat('a', 9000), ARRAY[repeat('p', 9000), NULL, '"']), (2, 20, repeat('b', 9000), '{}'), (3, 30, NULL, NULL);
INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (2, NULL);
-- workload
UPDATE t SET n = 11 WHERE id = 1;
INSERT INTO t (id, n, large, parts) VALUES (4, 40, repeat('d', 9000), ARRAY[E'tab\t\\', repeat('q', 9000)]);
INSERT INTO bag VALUES (3, 'y');
-- wait
UPDATE t SET n = NULL WHERE id = 2;
UPDATE t SET id = 5, n = 41 WHERE id = 4;
UPDATE t SET large = repeat('c', 9001) WHERE id = 3;
UPDATE t SET n = 31, parts = ARRAY['z'] WHERE id = 3;
UPDATE t SET n = n + 1;
-- expected t: live
--   id | n    | large                         | parts                         | made                           | size | fixed
--   1  | 12   | aaaaaaaaaaaa… 9000 characters | {ppppppppppp… 9012 characters | 12aaaaaaaaaa… 18002 characters | 9000 | 7
--   2  | NULL | bbbbbbbbbbbb… 9000 characters | {}                            | -bbbbbbbbbbb… 9002 characters  | 9000 | 7
--   3  | 32   | cccccccccccc… 9001 characters | {z}                           | 32cccccccccc… 9004 characters  | 9001 | 7
--   5  | 42   | dddddddddddd… 9000 characters | {"tab	\\",qq… 9011 characters | 42dddddddddd… 9007 characters  | 9000 | 7
-- history t: none
-- expected bag: live
--   n | large | made
--   1 | x     | 1x
--   1 | x     | 1x
--   2 | NULL  | NULL
--   3 | y     | 3y
-- history bag: none
