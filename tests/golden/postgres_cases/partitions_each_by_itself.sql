-- Partitions are followed each as a table, their root is not: rows that move are gone here and come there.
-- replicate leaf_a
-- replicate leaf_b
-- replicate leaf_rest
-- setup
CREATE TABLE root (a int PRIMARY KEY, b text) PARTITION BY LIST (a);
CREATE TABLE leaf_a (b text, a int NOT NULL);
ALTER TABLE root ATTACH PARTITION leaf_a FOR VALUES IN (1, 2, 3);
CREATE TABLE leaf_b PARTITION OF root FOR VALUES IN (4, 5, 6);
CREATE TABLE leaf_rest PARTITION OF root DEFAULT;
INSERT INTO root VALUES (1, 'copied'), (9, 'copied');
-- workload
INSERT INTO root VALUES (2), (0);
INSERT INTO leaf_a (a) VALUES (3);
INSERT INTO leaf_b VALUES (5, 'direct');
-- session compare
rows are in their partitions
-- session a
DELETE FROM root WHERE a = 1;
UPDATE root SET a = 1 WHERE a = 2;
UPDATE root SET a = 6 WHERE a = 5;
UPDATE root SET a = 4 WHERE a = 6;
-- session compare
none has moved
-- session a
UPDATE root SET a = 2 WHERE a = 0;
UPDATE root SET a = 5 WHERE a = 2;
-- session compare
one went from the rest to the first and on to the second
-- session a
DELETE FROM root WHERE a IN (1, 3, 5);
DELETE FROM leaf_b;
INSERT INTO root VALUES (1, 'x'), (4, 'y'), (10, 'z');

TRUNCATE leaf_b;
-- session compare
one partition is empty
-- session a
TRUNCATE root;

INSERT INTO root VALUES (1, 'foo'), (4, 'bar'), (10, 'baz');
UPDATE root SET b = 'quux' WHERE a = 4;
-- wait
DELETE FROM root WHERE a = 1;
