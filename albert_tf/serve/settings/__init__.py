"""The settings of the scripts that serve and convert models.

predict     which model answers, and where texts come from
page        which model answers, and where its page is
conversion  weights from one format to another
hub         TF-Hub modules
"""
