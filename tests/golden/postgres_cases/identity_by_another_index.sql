-- Another unique index identifies rows from now on; the next statements change what the first one was over.
-- replicate t
-- setup
CREATE TABLE t (a int NOT NULL, b int NOT NULL);
CREATE UNIQUE INDEX t_a ON t (a);
CREATE UNIQUE INDEX t_b ON t (b);
ALTER TABLE t REPLICA IDENTITY USING INDEX t_a;
INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);
-- workload
UPDATE t SET a = 30 WHERE b = 3;
-- session compare
by the first index
-- session a
ALTER TABLE t REPLICA IDENTITY USING INDEX t_b;
UPDATE t SET a = -a WHERE a = 1;
DELETE FROM t WHERE a = 2;
-- wait
UPDATE t SET b = 10 WHERE b = 1;
INSERT INTO t VALUES (-4, 1);
