-- Indexes over expressions and conditions that call functions, and tables that are temporary or not logged, beside a followed table.
-- replicate t
-- setup
CREATE TABLE t (a int PRIMARY KEY, b int);
CREATE FUNCTION twice(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x * 2';
CREATE INDEX ON t (b) WHERE a > identity_beside_odd_indexes.twice(1);
CREATE UNIQUE INDEX ON t (identity_beside_odd_indexes.twice(a));
-- workload
INSERT INTO t VALUES (1, 2), (3, 4);

CREATE TEMPORARY TABLE passing AS SELECT 1 AS a;
UPDATE passing SET a = 2;
CREATE UNLOGGED TABLE unlogged AS SELECT 1 AS a;
UPDATE unlogged SET a = 2;
INSERT INTO t SELECT a + 10, a FROM unlogged;
-- session compare
only the followed table is
-- session a
UPDATE t SET b = 5 WHERE a = 3;
UPDATE t SET a = 100 WHERE a = 1;
DROP TABLE passing, unlogged;
