"""A recipe is a file here, or two.

| recipe       | files                   | stands on                 |
|--------------|-------------------------|---------------------------|
| auto         | auto, by_hosts          | the recipes it tries      |
| exact        | exact                   |                           |
| dlcp         | bounded                 | loss, fills, importance   |
| low_bit      | low_bit, by_hosts       | coding, residual          |
| mstopk       | mstopk                  | sparse                    |
| hitopk       | mstopk, by_hosts        | sparse                    |
| redsync      | redsync                 | sparse                    |
| gradientflow | gradientflow            | flow, sparse              |

`table` has them by name, with the options that each reads. Only GradientState looks them up.
"""
