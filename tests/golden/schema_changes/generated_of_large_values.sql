-- A generated column is made of large values, which updates of the others leave out.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int, large text, made text GENERATED ALWAYS AS (n || large) STORED, size int GENERATED ALWAYS AS (length(large)) STORED);
ALTER TABLE t ALTER large SET STORAGE EXTERNAL, ALTER made SET STORAGE EXTERNAL;
INSERT INTO t (id, n, large) VALUES (1, 10, repeat('a', 9000)), (2, 20, repeat('b', 9000)), (3, 30, NULL);
-- workload
UPDATE t SET n = 11 WHERE id = 1;
INSERT INTO t (id, n, large) VALUES (4, 40, repeat('d', 9000));
-- wait
UPDATE t SET n = n WHERE id = 2;
UPDATE t SET id = 5, n = 41 WHERE id = 4;
UPDATE t SET large = repeat('c', 9001) WHERE id = 3;
UPDATE t SET n = 31 WHERE id = 3;
-- expected t: live
--   id | n  | large                         | made                          | size
--   1  | 11 | aaaaaaaaaaaa… 9000 characters | 11aaaaaaaaaa… 9002 characters | 9000
--   2  | 20 | bbbbbbbbbbbb… 9000 characters | 20bbbbbbbbbb… 9002 characters | 9000
--   3  | 31 | cccccccccccc… 9001 characters | 31cccccccccc… 9003 characters | 9001
--   5  | 41 | dddddddddddd… 9000 characters | 41dddddddddd… 9002 characters | 9000
-- history t: none
