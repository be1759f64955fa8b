-- The key itself is a large value, is not changed, is changed, and is part of an index over two columns.
-- replicate t
-- replicate pair
-- setup
CREATE TABLE t (id serial, k text PRIMARY KEY, big text, other text);
ALTER TABLE t ALTER k SET STORAGE EXTERNAL, ALTER big SET STORAGE EXTERNAL;
CREATE TABLE pair (a text NOT NULL, b text NOT NULL, c text);
ALTER TABLE pair ALTER a SET STORAGE EXTERNAL, ALTER c SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX pair_index ON pair (a, b);
ALTER TABLE pair REPLICA IDENTITY USING INDEX pair_index;
INSERT INTO t (k, big) VALUES (repeat('0123456789', 220), repeat('abcdefghij', 300)), (repeat('9876543210', 220), NULL);
INSERT INTO pair VALUES (repeat('1234567890', 200), '1', repeat('c', 5000));
-- workload
UPDATE t SET other = big;
UPDATE pair SET b = '2';
-- session compare
large keys were not sent
-- session a
UPDATE t SET k = k || '1';

UPDATE pair SET b = '3';
UPDATE pair SET b = '4', c = 'small';
INSERT INTO pair SELECT a, '5', c FROM pair;
-- session compare
keys are other ones
-- session a
DELETE FROM t WHERE big IS NULL;
UPDATE t SET other = 'x';
UPDATE pair SET a = 'small' WHERE b = '4';
