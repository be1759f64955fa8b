-- The key is a text whose limit grows.
-- replicate t
-- setup
CREATE TABLE t (code varchar(3) PRIMARY KEY, n int);
INSERT INTO t VALUES ('one', 1), ('two', 2);
-- workload
ALTER TABLE t ALTER code TYPE varchar(10);
INSERT INTO t VALUES ('three', 3);
UPDATE t SET n = 11 WHERE code = 'one';
UPDATE t SET code = 'twenty' WHERE code = 'two';
-- expected t: live
--   code   | n
--   one    | 11
--   three  | 3
--   twenty | 2
-- history t:
--   column code changed its type
